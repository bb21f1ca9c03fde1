"""The optional abilities of runs, one folder each. `orders` lists them all; a capability never imports another one."""
