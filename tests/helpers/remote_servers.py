"""Servers that hold a DVC remote on the loopback: S3 by moto, and SFTP by asyncssh.

    remote_servers.py s3              a bucket `bucket`; only its own keys may use it
    remote_servers.py ssh FOLDER KEY  FOLDER is the whole disk; only the user of the public key KEY may log in

Each prints its port, and for s3 a key and its secret, once it listens.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGES = Path(sys.prefix) / "remotes"  # `make test-long` installs them there, apart from what other tests use


def lacking() -> str:
    """What these tests need and the machine does not have; empty if nothing."""
    return "" if (PACKAGES / "installed").exists() else f"no {PACKAGES}: `make test-long` installs DVC's plugins there"


@contextmanager
def server(*arguments: str) -> Iterator[list[str]]:
    """Run this file as a program; gives what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGES)}
    command = [sys.executable, __file__, *arguments]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout
        try:
            yield process.stdout.readline().decode().split()
        finally:
            process.kill()


def _serve_s3() -> None:
    import boto3
    import requests
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    login = {"region_name": "us-east-1", "aws_access_key_id": "any", "aws_secret_access_key": "any"}
    boto3.client("s3", endpoint_url=address, **login).create_bucket(Bucket="bucket")
    users = boto3.client("iam", endpoint_url=address, **login)
    users.create_user(UserName="user")
    policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    users.put_user_policy(UserName="user", PolicyName="all", PolicyDocument=json.dumps(policy))
    key = users.create_access_key(UserName="user")["AccessKey"]
    requests.post(f"{address}/moto-api/reset-auth", data="0", timeout=10)  # from now on keys are checked
    print(port, key["AccessKeyId"], key["SecretAccessKey"], flush=True)
    server._thread.join()


def _serve_ssh(folder: str, key: str) -> None:
    import asyncio

    import asyncssh

    async def serve() -> None:
        server = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
            authorized_client_keys=key,
            sftp_factory=lambda connection: asyncssh.SFTPServer(connection, chroot=folder.encode()),
        )
        print(server.get_port(), flush=True)
        await server.wait_closed()

    asyncio.run(serve())


if __name__ == "__main__":
    {"s3": _serve_s3, "ssh": _serve_ssh}[sys.argv[1]](*sys.argv[2:])
