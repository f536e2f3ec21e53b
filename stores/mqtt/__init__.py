"""The store on an MQTT broker."""
