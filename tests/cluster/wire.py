"""The messages of ClusterD's gRPC services as a client of upstream's has them.

Made from the numbers of ``clusterd#5.3``, not from this project's own files, and in a pool
of their own: an independent client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

if TYPE_CHECKING:
    from google.protobuf.message import Message

_TEXT = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
_TYPES = {
    "string": _TEXT,
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
}
_FILES: dict[tuple[str, str], dict[str, str]] = {
    ("pubfault.proto", ""): {
        "RespStatus": "int32 code=1, string info=2",
        "PublicFaultRequest": (
            "string id=1, int64 timestamp=2, string version=3, string resource=4, *Fault faults=5"
        ),
        "Fault": (
            "string faultId=1, string faultType=2, string faultCode=3, int64 faultTime=4, "
            "string assertion=5, map faultLocation=6, *PubFaultInfo influence=7, "
            "string description=8"
        ),
        "PubFaultInfo": "string nodeName=1, string nodeSN=2, *int32 deviceIds=3",
    },
    ("fault.proto", "fault"): {
        "ClientInfo": "string jobId=1, string role=2",
        "Status": "int32 code=1, string info=2",
        "FaultQueryResult": "int32 code=1, string info=2, FaultMsgSignal faultSignal=3",
        "FaultMsgSignal": (
            "string uuid=1, string jobId=2, string signalType=3, *NodeFaultInfo nodeFaultInfo=4"
        ),
        "NodeFaultInfo": (
            "string nodeName=1, string nodeIP=2, string nodeSN=3, string faultLevel=4, "
            "*DeviceFaultInfo faultDevice=5"
        ),
        "DeviceFaultInfo": (
            "string deviceId=1, string deviceType=2, *string faultCodes=3, string faultLevel=4, "
            "*string faultType=5, *string faultReason=6, *SwitchFaultInfo switchFaultInfos=7, "
            "*string faultLevels=8"
        ),
        "SwitchFaultInfo": (
            "string faultCode=1, string switchChipId=2, string switchPortId=3, "
            "string faultTime=4, string faultLevel=5"
        ),
    },
    ("config.proto", "config"): {
        "ClientInfo": "string jobId=1, string role=2",
        "Status": "int32 code=1, string info=2",
        "RankTableStream": "string jobId=1, string rankTable=2",
    },
}

SEND = "/PubFault/SendPublicFault"
REGISTER = "/fault.Fault/Register"
SUBSCRIBE = "/fault.Fault/SubscribeFaultMsgSignal"
GET = "/fault.Fault/GetFaultMsgSignal"
REGISTER_RANK_TABLE = "/config.Config/Register"
SUBSCRIBE_RANK_TABLE = "/config.Config/SubscribeRankTable"

_METHODS = {
    SEND: ("PublicFaultRequest", "RespStatus"),
    REGISTER: ("fault.ClientInfo", "fault.Status"),
    SUBSCRIBE: ("fault.ClientInfo", "fault.FaultMsgSignal"),
    GET: ("fault.ClientInfo", "fault.FaultQueryResult"),
    REGISTER_RANK_TABLE: ("config.ClientInfo", "config.Status"),
    SUBSCRIBE_RANK_TABLE: ("config.ClientInfo", "config.RankTableStream"),
}


def request(method: str, content: dict[str, Any]) -> bytes:
    """Encode the request as a client sends it."""
    kind = _CLASSES[_METHODS[method][0]]
    return json_format.ParseDict(content, kind()).SerializeToString()


def answer(method: str, content: bytes) -> dict[str, Any]:
    """Decode an answer as the recordings have it: with all members."""
    kind = _CLASSES[_METHODS[method][1]]
    found: dict[str, Any] = json_format.MessageToDict(
        kind.FromString(content),
        always_print_fields_with_no_presence=True,
        preserving_proto_field_name=True,
    )
    return found


def _classes() -> dict[str, type[Message]]:
    pool = descriptor_pool.DescriptorPool()
    for (name, package), messages in _FILES.items():
        file = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")
        for message, fields in messages.items():
            _describe(file.message_type.add(name=message), fields, package)
        pool.Add(file)
    names = {name for pair in _METHODS.values() for name in pair}
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names
    }


def _describe(message: descriptor_pb2.DescriptorProto, fields: str, package: str) -> None:
    prefix = f".{package}" if package else ""
    for text in fields.split(", "):
        kind, _, rest = text.partition(" ")
        name, _, number = rest.partition("=")
        field = message.field.add(name=name, json_name=name, number=int(number))
        repeated = kind.startswith("*") or kind == "map"
        field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
        kind = kind.removeprefix("*")
        if kind == "map":
            entry = message.nested_type.add(name=f"{name[0].upper()}{name[1:]}Entry")
            entry.options.map_entry = True
            for part, at in (("key", 1), ("value", 2)):
                entry.field.add(name=part, number=at, type=_TEXT, label=field.LABEL_OPTIONAL)
            kind = f"{message.name}.{entry.name}"
        if kind in _TYPES:
            field.type = _TYPES[kind]
        else:
            field.type = field.TYPE_MESSAGE
            field.type_name = f"{prefix}.{kind}"


_CLASSES = _classes()
