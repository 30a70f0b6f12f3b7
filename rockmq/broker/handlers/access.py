"""Users and their rules (AdminBrokerProcessor.java, createUser and what follows; protocol spec, 8.2).

Whether somebody may do that at all the guard has decided. Here is what only super users may: make, change and delete super
users, and see secrets.
"""

from collections.abc import Awaitable

from rockmq.auth import policies
from rockmq.auth.accounts import (
    DISABLE,
    ENABLE,
    NORMAL,
    SUBJECT_PREFIX,
    SUPER,
    AccountError,
    Accounts,
    User,
    is_super,
    user_named,
)
from rockmq.auth.signature import ACCESS_KEY
from rockmq.base.errors import ConfigError
from rockmq.protocol import codec, json
from rockmq.protocol.bodies.access import AclInfo, UserInfo
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.headers.access import (
    CreateAcl,
    CreateUser,
    DeleteAcl,
    DeleteUser,
    GetAcl,
    GetUser,
    ListAcls,
    ListUsers,
    UpdateAcl,
    UpdateUser,
)
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Refusal

_BLANK = "The username is blank"


class AccessHandlers:
    def __init__(self, accounts: Accounts | None) -> None:
        """Without accounts the broker keeps no users (`authenticationEnabled`)."""
        self._kept = accounts

    @property
    def _accounts(self) -> Accounts:
        if self._kept is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "this broker keeps no users: authenticationEnabled=false")
        return self._kept

    # Users

    async def create_user(self, header: CreateUser, request: Command, _: Connection) -> Command:
        accounts = self._accounts
        info = _user_in(header, request)
        if _asks_super(info) and not self._is_super(request):
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The super user can only be create by super user")
        return await _done(request, accounts.create_user(info))

    async def update_user(self, header: UpdateUser, request: Command, _: Connection) -> Command:
        accounts = self._accounts
        info = _user_in(header, request)
        by_super = self._is_super(request)
        if _asks_super(info) and not by_super:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The super user can only be update by super user")
        return await _done(request, accounts.update_user(info, by_super=by_super))

    async def delete_user(self, header: DeleteUser, request: Command, _: Connection) -> Command:
        return await _done(request, self._accounts.delete_user(header.username, by_super=self._is_super(request)))

    def get_user(self, header: GetUser, request: Command, _: Connection) -> Command:
        if not header.username.strip():
            raise Refusal(ResponseCode.INVALID_PARAMETER, _BLANK)
        user = self._accounts.users.get(header.username)
        return codec.reply(request, body=json.encode(self._told(user, request)) if user is not None else b"")

    def list_users(self, header: ListUsers, request: Command, _: Connection) -> Command:
        wanted = (header.filter or "").strip()
        users = self._accounts.users
        found = [self._told(users[name], request) for name in sorted(users) if wanted in name]
        return codec.reply(request, body=json.encode(found) if found else b"")

    def _told(self, user: User, request: Command) -> UserInfo:
        return UserInfo(
            username=user.name,
            password=user.secret if self._is_super(request) else None,
            user_type=SUPER if user.is_super else NORMAL,
            user_status=ENABLE if user.is_enabled else DISABLE,
        )

    def _is_super(self, request: Command) -> bool:
        asker = self._accounts.users.get(request.fields.get(ACCESS_KEY, ""))
        return asker is not None and asker.is_super

    # Rules

    async def update_acl(self, header: CreateAcl | UpdateAcl, request: Command, _: Connection) -> Command:
        """Both requests: to make rules and to change them is the same."""
        accounts = self._accounts
        info = json.decode(request.body, AclInfo, "rules")
        try:
            changes = policies.parse(info)
            # Apache's broker goes by the body's.
            name = user_named(info.subject or header.subject)
        except (ConfigError, AccountError) as error:
            raise Refusal(ResponseCode.NO_PERMISSION, str(error)) from None
        return await _done(request, accounts.update_rules(name, changes))

    async def delete_acl(self, header: DeleteAcl, request: Command, _: Connection) -> Command:
        accounts = self._accounts
        policy = {"": policies.CUSTOM, "custom": policies.CUSTOM, "default": policies.DEFAULT}.get(
            (header.policy_type or "").lower()
        )
        if policy is None:
            raise Refusal(ResponseCode.NO_PERMISSION, f"{header.policy_type!r} is neither Custom nor Default")
        resource = header.resource if header.resource and header.resource.strip() else None
        return await _done(request, accounts.delete_rules(_subject(header.subject), policy, resource))

    def get_acl(self, header: GetAcl, request: Command, _: Connection) -> Command:
        accounts = self._accounts
        name = _subject(header.subject)
        if name not in accounts.users:
            raise Refusal(ResponseCode.NO_PERMISSION, "The subject is not exist.")
        rules = accounts.rules.get(name)
        found = policies.body(SUBJECT_PREFIX + name, rules) if rules else None
        return codec.reply(request, body=json.encode(found) if found is not None else b"")

    def list_acls(self, header: ListAcls, request: Command, _: Connection) -> Command:
        wanted = (header.subject_filter or "").strip()
        found = [
            policies.body(SUBJECT_PREFIX + name, rules, (header.resource_filter or "").strip())
            for name, rules in sorted(self._accounts.rules.items())
            if wanted in SUBJECT_PREFIX + name
        ]
        found = [each for each in found if each.policies]
        return codec.reply(request, body=json.encode(found) if found else b"")


async def _done(request: Command, change: Awaitable[None]) -> Command:
    try:
        await change
    except (AccountError, ConfigError) as error:
        raise Refusal(ResponseCode.NO_PERMISSION, str(error)) from None
    return codec.reply(request)


def _user_in(header: CreateUser | UpdateUser, request: Command) -> UserInfo:
    if not header.username.strip():
        raise Refusal(ResponseCode.INVALID_PARAMETER, _BLANK)
    info = json.decode(request.body, UserInfo, "user")
    info.username = header.username
    return info


def _asks_super(info: UserInfo) -> bool:
    try:
        return is_super(info) or False
    except AccountError as error:
        raise Refusal(ResponseCode.NO_PERMISSION, str(error)) from None


def _subject(text: str) -> str:
    try:
        return user_named(text)
    except AccountError as error:
        raise Refusal(ResponseCode.NO_PERMISSION, str(error)) from None
