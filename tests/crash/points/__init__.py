"""Power cuts at every system call: how it works is in CONTRIBUTING.md, "Crash points".

syscalls    stops a process at each system call that changes files, and answers its syncs
worker      that process: it runs a load on a real store
load        what it does, from a seed
disk        which bytes and names are on disk for sure, and which may be
history     what was appended, what was acknowledged
checker     recovers an image of the disk with the real code and compares
run         all of it, from a seed
"""
