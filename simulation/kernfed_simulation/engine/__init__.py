"""Where the clients of a simulation compute: in this process, or in workers beside it, with the same bits."""
