"""The admin port: what a broker shows to people and to monitoring, over HTTP."""
