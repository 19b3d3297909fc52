"""Operating one machine: embedded services, `up`, the demo, login links, catalogues."""
