"""One broker as one pure machine: composes the protocols, and does no input or output itself."""
