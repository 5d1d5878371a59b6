"""Recorded runs sent to a server, plugin off and on."""
