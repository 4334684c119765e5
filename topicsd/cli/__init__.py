"""Commands for people: parse flags, call one function of a lower room, print, exit."""
