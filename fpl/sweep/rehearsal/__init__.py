"""`fpl rehearse`: the paper's scale tried on this machine before it is paid for, with full-size files and networks."""
