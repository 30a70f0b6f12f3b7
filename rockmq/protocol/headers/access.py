"""Users of a broker and what they may do (protocol spec, 8.2)."""

from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import Header, request


@request(RequestCode.AUTH_CREATE_USER)
class CreateUser(Header, kw_only=True):
    """The user is in the body, `rockmq.protocol.bodies.access.UserInfo`."""

    username: str


@request(RequestCode.AUTH_UPDATE_USER)
class UpdateUser(Header, kw_only=True):
    """As CreateUser; what the body leaves out stays as it is."""

    username: str


@request(RequestCode.AUTH_DELETE_USER)
class DeleteUser(Header, kw_only=True):
    username: str


@request(RequestCode.AUTH_GET_USER)
class GetUser(Header, kw_only=True):
    username: str


@request(RequestCode.AUTH_LIST_USER)
class ListUsers(Header, kw_only=True):
    filter: str | None = None


@request(RequestCode.AUTH_CREATE_ACL)
class CreateAcl(Header, kw_only=True):
    """`subject` is `User:name`; the rest is in the body, `rockmq.protocol.bodies.access.AclInfo`."""

    subject: str


@request(RequestCode.AUTH_UPDATE_ACL)
class UpdateAcl(Header, kw_only=True):
    """As CreateAcl; entries for other resources stay as they are."""

    subject: str


@request(RequestCode.AUTH_DELETE_ACL)
class DeleteAcl(Header, kw_only=True):
    """Without a `resource`, which has `Topic:` or the like before it, all that the subject has."""

    subject: str
    policy_type: str | None = None
    resource: str | None = None


@request(RequestCode.AUTH_GET_ACL)
class GetAcl(Header, kw_only=True):
    subject: str


@request(RequestCode.AUTH_LIST_ACL)
class ListAcls(Header, kw_only=True):
    subject_filter: str | None = None
    resource_filter: str | None = None
