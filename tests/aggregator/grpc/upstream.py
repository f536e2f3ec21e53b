"""Clients as upstream's are: from message numbers written down once more (clusterd#5.3).

They share nothing with the `.proto` files of the server: a number that is wrong there is seen here.
They live in a pool of their own, because both know messages of the same names.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message_factory import GetMessageClass

from tests.parts.deadlines import patience

if TYPE_CHECKING:
    from collections.abc import Mapping

_TEXTS = {
    "pubfault": """
        service PubFault { rpc SendPublicFault(PublicFaultRequest) returns (RespStatus); }
        message RespStatus { int32 code=1; string info=2; }
        message PublicFaultRequest {
          string id=1; int64 timestamp=2; string version=3; string resource=4;
          repeated Fault faults=5; }
        message Fault {
          string faultId=1; string faultType=2; string faultCode=3; int64 faultTime=4;
          string assertion=5; map<string,string> faultLocation=6;
          repeated PubFaultInfo influence=7; string description=8; }
        message PubFaultInfo { string nodeName=1; string nodeSN=2; repeated int32 deviceIds=3; }
    """,
    "fault": """
        package fault;
        service Fault {
          rpc Register(ClientInfo) returns (Status);
          rpc SubscribeFaultMsgSignal(ClientInfo) returns (stream FaultMsgSignal);
          rpc GetFaultMsgSignal(ClientInfo) returns (FaultQueryResult); }
        message ClientInfo { string jobId=1; string role=2; }
        message Status { int32 code=1; string info=2; }
        message FaultQueryResult { int32 code=1; string info=2; FaultMsgSignal faultSignal=3; }
        message FaultMsgSignal {
          string uuid=1; string jobId=2; string signalType=3;
          repeated NodeFaultInfo nodeFaultInfo=4; }
        message NodeFaultInfo {
          string nodeName=1; string nodeIP=2; string nodeSN=3; string faultLevel=4;
          repeated DeviceFaultInfo faultDevice=5; }
        message DeviceFaultInfo {
          string deviceId=1; string deviceType=2; repeated string faultCodes=3;
          string faultLevel=4; repeated string faultType=5; repeated string faultReason=6;
          repeated SwitchFaultInfo switchFaultInfos=7; repeated string faultLevels=8; }
        message SwitchFaultInfo {
          string faultCode=1; string switchChipId=2; string switchPortId=3; string faultTime=4;
          string faultLevel=5; }
    """,
    "config": """
        package config;
        service Config {
          rpc Register(ClientInfo) returns (Status);
          rpc SubscribeRankTable(ClientInfo) returns (stream RankTableStream); }
        message ClientInfo { string jobId=1; string role=2; }
        message Status { int32 code=1; string info=2; }
        message RankTableStream { string jobId=1; string rankTable=2; }
    """,
}


@cache
def _pool() -> DescriptorPool:
    pool = DescriptorPool()
    with tempfile.TemporaryDirectory() as place:
        for name, text in _TEXTS.items():
            (Path(place) / f"{name}.proto").write_text(f'syntax = "proto3";\n{text}')
        built = Path(place) / "set"
        names = [f"{name}.proto" for name in _TEXTS]
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{place}"]
        subprocess.run([*command, f"--descriptor_set_out={built}", *names], check=True)
        for file in descriptor_pb2.FileDescriptorSet.FromString(built.read_bytes()).file:
            pool.Add(file)
    return pool


class Client:
    """Calls methods by their full name with JSON, over one connection of its own."""

    def __init__(self, target: str, credentials: grpc.ChannelCredentials | None = None) -> None:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        self.channel = (
            grpc.aio.insecure_channel(target, options=options)
            if credentials is None
            else grpc.aio.secure_channel(target, credentials, options=options)
        )

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()

    async def ask(self, method: str, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return one reply."""
        service, name = method.split("/")
        shape = _pool().FindServiceByName(service).methods_by_name[name]
        call = self.channel.unary_unary(f"/{method}", *_codecs(shape))
        return _shown(await call(_request(shape, request or {}), timeout=patience(20)))

    def listen(self, method: str, request: Mapping[str, Any] | None = None) -> Stream:
        """Return a stream of replies."""
        service, name = method.split("/")
        shape = _pool().FindServiceByName(service).methods_by_name[name]
        call = self.channel.unary_stream(f"/{method}", *_codecs(shape))
        return Stream(call(_request(shape, request or {})))

    async def ask_raw(self, path: str, content: bytes) -> bytes:
        """Return one reply to bytes that may be no request."""
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self.channel.unary_unary(path)
        return await call(content, timeout=patience(20))

    async def listen_raw(self, path: str, content: bytes, seconds: float) -> None:
        """Listen with such bytes, and to the first answer."""
        call: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = self.channel.unary_stream(path)
        await call(content, timeout=patience(seconds)).read()


class Stream:
    """The messages of a subscription."""

    def __init__(self, call: Any) -> None:
        self.call = call

    async def next(self) -> dict[str, Any] | None:
        """Return the next message; ``None`` where the stream ended without an error."""
        message = await self.call.read()
        return None if message is grpc.aio.EOF else _shown(message)

    def cancel(self) -> None:
        """Listen no more."""
        self.call.cancel()


def _codecs(shape: Any) -> tuple[Any, Any]:
    asked, answered = GetMessageClass(shape.input_type), GetMessageClass(shape.output_type)
    return asked.SerializeToString, answered.FromString


def _request(shape: Any, request: Mapping[str, Any]) -> Any:
    return ParseDict(dict(request), GetMessageClass(shape.input_type)())


def _shown(message: Any) -> dict[str, Any]:
    shown: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    return shown
