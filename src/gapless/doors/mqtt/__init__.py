"""The MQTT door: clients of MQTT 5.0, 3.1.1 and 3.1 are clients of a broker."""
