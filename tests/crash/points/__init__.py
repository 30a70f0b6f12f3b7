"""Power cuts at every system call: how it works is in CONTRIBUTING.md, "Crash points".

syscalls    stops a process at each system call that changes files, and answers its syncs
worker      that process: it runs loads
load        what one does with the core, from a seed
store_load  the same with `MessageStore`
documents   the tables of topics and offsets: load, what has to be there, and the check of it
loop        an event loop whose time and order a seed decides
disk        which bytes and names are on disk for sure, and which may be
history     what was appended, what was acknowledged
checker     recovers an image of the disk with the real code and compares
run         all of it, from a seed
"""
