"""Language servers: real ones, over their standard streams, shared by the runs of a process."""
