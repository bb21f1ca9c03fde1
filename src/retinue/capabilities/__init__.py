"""What runs can optionally do, one folder each. `orders` lists them all; a capability never imports another one."""
