"""The client's side of the session: dial, say hello, work, answer; and dial again when the line breaks.

Nothing is lost by a broken line: computations go on, answers wait in the outbox, and the hello after a reconnect tells
the coordinator which tasks need not be sent again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import grpc
import grpc.aio
import structlog

from kernfed.errors import JobCancelledError, KernfedError, UnavailableError, WireError
from kernfed.pki.identity import Identity, channel_credentials
from kernfed.status import PeerStatus
from kernfed.v1 import federation_service_pb2 as pb
from kernfed.v1 import task_pb2
from kernfed.wire.channel import CHANNEL_OPTIONS
from kernfed.wire.frames import (
    CONNECT_METHOD,
    PROTOCOL_VERSION,
    identity,
)
from kernfed.wire.incoming import IncomingPayload
from kernfed.wire.outgoing import Outgoing
from kernfed_client.daemon.connection import (
    Connection,
    LineDownError,
    SaidGoodbyeError,
    Stream,
    backoff_s,
    foremost,
    parse,
    why_it_ended,
)
from kernfed_client.daemon.idle_cuts import IdleCuts
from kernfed_client.daemon.intake import MAX_ENDING, Intake, check_names
from kernfed_client.daemon.outbox import Outbox
from kernfed_client.daemon.reply_store import ReplyStore
from kernfed_client.daemon.submissions import Submissions
from kernfed_client.daemon.tasks import Answered, TaskRunner
from kernfed_client.daemon.worker import Worker

log = structlog.get_logger(__name__)

WELCOME_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Offer:
    """Facts about this client for the hello."""

    software_version: str
    datasets: tuple[tuple[str, tuple[str, ...]], ...]
    """(name, partitions) pairs."""


class ClientSession:
    """Keeps a session with the coordinator for as long as the daemon lives."""

    def __init__(
        self,
        load_identity: Callable[[], Identity],
        address: str | None,
        offer: Offer,
        runner: TaskRunner,
        worker: Worker,
        reconnect_max_s: float = 30.0,
        explain: Callable[[str, Identity, KernfedError], KernfedError] = lambda _address, _identity, err: err,
        store: ReplyStore | None = None,
        max_memory_bytes: int | None = None,
        submissions: Submissions | None = None,
    ) -> None:
        """Prepare; `run` dials.

        Args:
            load_identity: Reads the identity from disk at each attempt, so that a renewed certificate is used.
            address: host:port of the coordinator; None: the one in the identity.
            offer: For the hello.
            runner: Answers tasks.
            worker: Thread that it runs in.
            reconnect_max_s: Longest pause between attempts.
            explain: Turns a failed connection into an error with diagnosis and remedy; may take seconds, and blocks.
            store: Keeps replies over the death of this process; None: they are computed again.
            max_memory_bytes: Of the client file.
            submissions: Takes what operators signed; None: nobody looks at it.
        """
        self._load_identity = load_identity
        self._address = address
        self._offer = offer
        self._runner = runner
        self._worker = worker
        self._reconnect_max_s = reconnect_max_s
        self._explain = explain
        self._instance_id = secrets.token_hex(8)
        self._outbox = Outbox()
        self._store = store
        self._submissions = submissions
        for reply in store.restore() if store else ():
            self._outbox.restore(reply)
        self._intake = Intake(worker, max_memory_bytes)
        self._ending = 0
        """Jobs that are over, and whose state is still to be dropped."""
        self._outgoing: Outgoing | None = None
        self._device: tuple[str, str] | None = None
        self.idle_cuts = IdleCuts()
        """What is known of a box that cuts idle lines."""
        self._connected = asyncio.Event()
        self._ended_here = False

    @property
    def connected(self) -> bool:
        """Whether there is a session now."""
        return self._connected.is_set()

    async def wait_connected(self) -> None:
        """Wait for a session."""
        await self._connected.wait()

    def report_device(self, device: str, note: str) -> None:
        """Tell the coordinator what this client computes on, now and after each reconnect."""
        self._device = (device, note)
        if self._outgoing is not None:
            self._send_device(self._outgoing)

    def dial_again(self) -> None:
        """End the connection, so that the next one shows the certificate that lies in the identity folder by now."""
        if self._outgoing is not None:
            self._ended_here = True
            self._outgoing.close()

    async def run(self) -> None:
        """Dial and serve until cancelled. A refusal or a dead line is logged once per change and tried again."""
        attempt = 0
        said = ""
        while True:
            try:
                await self._serve()
                attempt, said = 0, ""
            except (KernfedError, LineDownError) as err:
                if self._was_connected():
                    attempt, said = 0, ""
                else:
                    self.idle_cuts.forget()
                if not self._ended_here:
                    said = await self._say(err, said)
                self._ended_here = False
            await asyncio.sleep(backoff_s(attempt, self._reconnect_max_s))
            attempt += 1

    def _was_connected(self) -> bool:
        was = self._connected.is_set()
        self._connected.clear()
        return was

    async def _say(self, err: Exception, said: str) -> str:
        text = str(err)
        if isinstance(err, UnavailableError):
            text = await self._explained(err)
        if text != said:
            log.warning(
                "no session with the coordinator; trying again until there is one",
                error=text,
                reason=getattr(err, "reason", "UNAVAILABLE"),
            )
        return text

    async def _explained(self, err: KernfedError) -> str:
        def diagnose() -> KernfedError:
            me = self._load_identity()
            return self._explain(self._address or me.coordinator, me, err)

        try:
            return str(await asyncio.to_thread(diagnose))
        except KernfedError as own:
            return str(own)

    async def _serve(self) -> None:
        """One connection, from dialling to its end."""
        me = await asyncio.to_thread(self._load_identity)
        address = self._address or me.coordinator
        async with grpc.aio.secure_channel(address, channel_credentials(me), options=CHANNEL_OPTIONS) as channel:
            call = channel.stream_stream(CONNECT_METHOD, request_serializer=identity, response_deserializer=identity)
            stream: Stream = call()
            ended = PeerStatus(stream)
            try:
                welcome = await self._greet(stream, ended)
                log.info("session open", coordinator=address, client=welcome.client)
                await self._converse(stream, ended, welcome)
            except grpc.aio.AioRpcError as err:
                raise why_it_ended(await ended.behind(err)) from err
            except asyncio.InvalidStateError as err:
                raise LineDownError("the stream ended") from err
            finally:
                self._outgoing = None
                stream.cancel()

    async def _greet(self, stream: Stream, ended: PeerStatus) -> pb.Welcome:
        known = {task_id: self._outbox.request_sha256(task_id) for task_id in self._outbox.undelivered()}
        known |= self._intake.digests
        hello = pb.Hello(
            protocol_version=PROTOCOL_VERSION,
            software_version=self._offer.software_version,
            instance_id=self._instance_id,
            datasets=[pb.OfferedDataset(name=n, partitions=p) for n, p in self._offer.datasets],
            steps=self._runner.step_names,
            known_task_ids=list(known),
            known_requests_sha256=list(known.values()),
        )
        try:
            async with asyncio.timeout(WELCOME_TIMEOUT_S):
                await stream.write(pb.ConnectRequest(hello=hello).SerializeToString())
                first = await stream.read()
        except TimeoutError:
            raise UnavailableError(f"no welcome from the coordinator within {WELCOME_TIMEOUT_S:g} s") from None
        if not isinstance(first, bytes):
            raise why_it_ended(await ended.end())
        frame = parse(first)
        if frame.WhichOneof("frame") != "welcome":
            raise WireError("the coordinator's first frame is not a welcome")
        return frame.welcome

    async def _converse(self, stream: Stream, ended: PeerStatus, welcome: pb.Welcome) -> None:
        outgoing = self._outgoing = Outgoing()
        for task_id in self._outbox.undelivered():
            self._send_answer(task_id)
        self._send_device(outgoing)
        self._connected.set()
        connection = Connection(self, stream, ended, outgoing, welcome, self.idle_cuts)
        failure: BaseException | None = None
        idle_s = 0.0
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(connection.write())
                tasks.create_task(connection.read())
                tasks.create_task(connection.heartbeat())
        except* (KernfedError, LineDownError, grpc.aio.AioRpcError, asyncio.InvalidStateError) as errors:
            failure = foremost(errors.exceptions)
            idle_s = connection.idle_s
        finally:
            for task_id in connection.unfinished:
                self._intake.leave(task_id)
        if failure is not None:
            broke = isinstance(failure, (UnavailableError, LineDownError, grpc.aio.AioRpcError))
            if broke and not connection.silent and not self._ended_here and not isinstance(failure, SaidGoodbyeError):
                self.idle_cuts.broke(idle_s)
            else:
                self.idle_cuts.forget()
            raise failure

    def _send_device(self, outgoing: Outgoing) -> None:
        if self._device is not None:
            report = pb.DeviceReport(device=self._device[0], note=self._device[1])
            outgoing.put(pb.ConnectRequest(device=report).SerializeToString())

    def _send_answer(self, task_id: str) -> None:
        if self._outgoing is not None and self._outbox.holds(task_id):
            frame, body = self._outbox.frame(task_id)
            self._outgoing.put(frame, body)

    # What the connection calls.

    def told(self, submission: task_pb2.JobSubmission) -> None:
        """The coordinator passes on what a job's operator signed."""
        if self._submissions is not None:
            self._submissions.told(submission)

    def begin(self, task: task_pb2.Task) -> IncomingPayload | None:
        """A task arrives: answer it from the outbox, or make room for its request.

        Raises:
            WireError: No honest coordinator sends this, or sends it now.
        """
        check_names(task.job_id, task.task_id, task.submitted_by, task.method)
        moves_state = self._runner.moves_state(task.step)
        # The state on disk has the answer to its last step, and knows whether there were later ones.
        if self._outbox.answers(task) and not (moves_state and self._outbox.restored(task.task_id)):
            if self._outbox.delivered(task.task_id):  # any other is on its way already
                self._outbox.asked(task.task_id)
                self._send_answer(task.task_id)
            return None
        if self._intake.holds(task):
            return None
        if self._outbox.holds(task.task_id):
            log.info("a task that was answered is computed anew", task_id=task.task_id)
            self._drop_answer(task.task_id)
        self._intake.leave(task.task_id)
        self._intake.check_count(task.job_id, self._outbox.not_taken())
        try:
            return self._intake.admit(task, self._runner.incoming)
        except KernfedError as err:
            self._fail(task, err)
            return None

    def _drop_answer(self, task_id: str) -> None:
        self._stop_sending(task_id)
        self._outbox.drop(task_id)
        self._forget(task_id)

    def compute(self, task: task_pb2.Task, incoming: IncomingPayload) -> None:
        """Run a step and send its answer, over whatever connection there is by then."""
        held = self._intake.find(task)
        if held is None:
            return  # asked anew while it arrived

        def answered(answer: Answered | None, error: BaseException | None) -> None:
            if self._intake.find(task) is None:
                if task.task_id not in self._intake:
                    self._forget(task.task_id)
                return  # cancelled meanwhile, or asked anew
            self._intake.leave(task.task_id)
            if isinstance(error, KernfedError):
                log.warning("step refused or failed", task_id=task.task_id, reason=error.reason, error=str(error))
                self._fail(task, error)
            elif answer is None:
                raise error or RuntimeError("a step ended without an answer")
            else:
                once = self._runner.moves_state(task.step) and not answer.setup
                for task_id in self._outbox.superseded(task, once=once, place=answer.place if answer.setup else None):
                    self._drop_answer(task_id)
                self._outbox.add_reply(task, answer.payload, answer.compute_s, once=once, place=answer.place)
                self._send_answer(task.task_id)

        def answer() -> Answered:
            if self._intake.find(task) is None:
                raise JobCancelledError("the task was cancelled before its turn came")
            answered = self._runner.answer(task, incoming, lambda: self._intake.find(task) is not None)
            if self._store is not None:
                self._store.put(task, answered.payload, answered.compute_s)
            return answered

        held.turn = self._worker.submit(answer, answered)

    def _fail(self, task: task_pb2.Task, err: KernfedError) -> None:
        failure = task_pb2.TaskFailure(
            task_id=task.task_id, reason=err.reason, message=err.public[:4000], request_sha256=task.request_sha256
        )
        self._outbox.add_failure(task.job_id, failure)
        self._send_answer(task.task_id)

    def acknowledged(self, ack: task_pb2.TaskAck) -> None:
        """The coordinator has an answer, or refuses it."""
        if ack.refused:
            log.warning("answer not taken by the coordinator", task_id=ack.task_id, why=ack.refused)
        self._stop_sending(ack.task_id)  # it may be a second copy of what the coordinator has
        self._outbox.acknowledge(ack.task_id)
        self._forget(ack.task_id)

    def cancelled(self, cancel: task_pb2.Cancel) -> list[str]:
        """Drop a task, or a whole job with its state; returns the tasks that were not answered yet.

        Raises:
            WireError: The coordinator ends more jobs than there can be.
        """
        check_names(cancel.job_id, cancel.task_id)
        gone = [t for t in self._intake.of_job(cancel.job_id) if cancel.task_id in ("", t)]
        for task_id in gone:
            self._intake.leave(task_id)
        for task_id in [cancel.task_id] if cancel.task_id else self._outbox.of_job(cancel.job_id):
            self._stop_sending(task_id)
        if cancel.task_id:
            self._forget(cancel.task_id)
        else:
            self._outbox.drop_job(cancel.job_id)
            if self._ending >= MAX_ENDING:
                raise WireError(f"the coordinator ends more than {MAX_ENDING} jobs at once")
            self._ending += 1
            # Nobody waits: a step may be under way for minutes, and the line must be read meanwhile.
            self._worker.submit(lambda: self._drop_job(cancel.job_id), self._job_dropped)
        return gone

    def _job_dropped(self, _done: None, error: BaseException | None) -> None:
        self._ending -= 1
        if error is not None:
            log.error("a job's state could not be dropped", exc_info=error)

    def _drop_job(self, job_id: str) -> None:
        self._runner.drop_job(job_id)
        if self._submissions is not None:
            self._submissions.forget(job_id)
        if self._store is not None:
            self._store.drop_job(job_id)

    def _forget(self, task_id: str) -> None:
        """Remove a reply from disk."""
        if self._store is None:
            return
        if self._store.is_file(task_id):  # the system may take its time over a large file
            asyncio.get_running_loop().run_in_executor(None, self._store.forget, task_id)
        else:
            self._store.forget(task_id)

    def _stop_sending(self, task_id: str) -> None:
        transfer = self._outbox.transfer(task_id)
        if self._outgoing is not None and transfer:
            self._outgoing.drop(transfer)

    @property
    def busy_task_ids(self) -> Sequence[str]:
        """Tasks being received or computed."""
        return list(self._intake.digests)
