# SPDX-License-Identifier: Apache-2.0
"""A llama-server of ./dev hosts as a child: asked, left in mid-prompt, measured, stopped; answers with log-probs."""

import ctypes
import dataclasses
import http.client
import json
import pathlib
import signal
import socket
import subprocess
import time

import environment

PR_SET_PDEATHSIG = 1
# A busy machine is no failure: ctest has the last word.
START_SECONDS, STOP_SECONDS, ANSWER_SECONDS = 600, 60, 3600
SLOTS = 4  # what the server takes when nobody says, with one cache for all
PREDICT, TOP = 12, 20  # tokens of an answer, and of the most probable ones that are told of each


@dataclasses.dataclass(frozen=True)
class Answer:
    tokens: tuple[int, ...]
    top: tuple[dict, ...]  # for each of them: token -> log-probability, of the most probable ones


def answer_of(said):
    steps = said["completion_probabilities"]
    return Answer(tuple(step["id"] for step in steps),
                  tuple({token["id"]: token["logprob"] for token in step["top_logprobs"]} for step in steps))


def die_with_parent():
    """A test that is killed for its time leaves no server behind."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class ServerError(RuntimeError):
    """The server did not start, died, or answered something else than an answer."""


class Server:
    """One server process; `variables` are its environment's, beside none of ours. A context manager."""

    def __init__(self, program, model, folder, flash, context, **variables):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = pathlib.Path(folder) / "server.log"
        # Micro-batches as batches, so that a prompt can be left between two. No prompts kept in memory beside the
        # slots: that cache grows to gigabytes by design.
        command = [str(program), "-m", str(model), "-c", str(context), "-b", "512", "-ub", "512", "-fa", flash, "-t",
                   "2", "--host", "127.0.0.1", "--port", str(self.port), "--cache-ram", "0"]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, env=environment.clean(OMP_WAIT_POLICY="passive", **variables),
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                            preexec_fn=die_with_parent)

    def __enter__(self):
        try:
            self._wait()
        except BaseException:
            self.process.kill()
            raise
        return self

    def __exit__(self, kind, error, trace):
        """Stopped as a user stops it, so that the plug-in's report is written."""
        self.process.send_signal(signal.SIGINT)
        try:
            code = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = "none: it did not stop"
        if kind is None and code != 0:
            raise ServerError(f"the server's exit code is {code}\n{self.log.read_text()[-3000:]}")

    def _wait(self):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            try:
                if self._get("/health").get("status") == "ok":
                    return
            except OSError:
                pass
            time.sleep(0.2)
        raise ServerError(f"the server does not start\n{self.log.read_text()[-3000:]}")

    def _connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)

    def _get(self, path):
        connection = self._connect()
        connection.request("GET", path)
        said = json.loads(connection.getresponse().read())
        connection.close()
        return said

    def slots(self):
        return self._get("/props")["total_slots"]

    def _post(self, connection, prompt, **more):
        body = {"prompt": prompt, "n_predict": PREDICT, "n_probs": TOP, "temperature": 0, "seed": 1,
                "ignore_eos": True} | more
        connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
        return connection.getresponse()

    def ask(self, prompt, **more):
        connection = self._connect()
        response = self._post(connection, prompt, **more)
        said = json.loads(response.read())
        connection.close()
        if response.status != 200 or len(said.get("completion_probabilities", ())) != PREDICT:
            raise ServerError(f"status {response.status}: {str(said)[:500]}")
        return answer_of(said)

    def leave(self, prompt):
        """Closes the connection in mid-prompt; False where the prompt was over before that.

        It is computed from its start: what is not in the cache may be one batch.
        """
        connection = self._connect()
        response = self._post(connection, prompt, stream=True, return_progress=True, cache_prompt=False)
        for line in response:
            if not line.startswith(b"data: "):
                continue
            progress = json.loads(line[len(b"data: "):]).get("prompt_progress")
            if not progress or progress["processed"] > progress["cache"]:
                break
        connection.close()
        return bool(progress) and progress["processed"] < progress["total"]

    def memory(self):
        """MiB of its own: the model's file is mapped and counts for nobody."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:")) / 1024
