"""Who a request is from, and whether it may be carried out. Knows requests, not what answers them.

`guard.py` is what a server asks. `plain.py` is Apache's older way (plain_acl.yml), `accounts.py` and `policies.py` the newer
one (users and rules). What a request needs is in `needs.py`, for both.
"""
