"""Users of a broker and what they may do (UserInfo.java, AclInfo.java; protocol spec, 8.2)."""

from msgspec import field

from rockmq.protocol.bodies.common import Body


class UserInfo(Body, kw_only=True, omit_defaults=True):
    """`user_type` is Super or Normal, `user_status` enable or disable."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None


class PolicyEntry(Body, kw_only=True, omit_defaults=True):
    resource: str
    actions: list[str] = field(default_factory=list)
    source_ips: list[str] | None = None
    decision: str


class Policy(Body, kw_only=True):
    """`policy_type` is Custom or Default."""

    policy_type: str | None = None
    entries: list[PolicyEntry] | None = None


class AclInfo(Body, kw_only=True):
    subject: str
    policies: list[Policy] | None = None
