"""Memory of the queues and receive buffers of a far-memory connection. Prints one JSON line.

python benchmarks/workers/far_queues.py ADDRESS --token-file F --threads T --queue-length L
    --receive shared|per_thread

Every thread fills its queue with reads once, so that all counted memory has been in use.
"""

import argparse
import json
import threading

from outercore.data import far

CHUNK = 256 << 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address")
    parser.add_argument("--token-file", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--queue-length", type=int, required=True)
    parser.add_argument("--receive", choices=("shared", "per_thread"), required=True)
    options = parser.parse_args()

    server = far.FarOptions(
        options.address,
        token_file=options.token_file,
        chunk=CHUNK,
        queues=options.threads,
        queue_length=options.queue_length,
    )
    with far.build_connection(
        server, threads=options.threads, receive=options.receive
    ) as connection:
        region = connection.allocate(CHUNK)
        connection.far_write_start(region, bytes(CHUNK))
        connection.far_write_complete()
        share = max(1, options.queue_length // options.threads)
        depth = share if options.receive == "shared" else options.queue_length

        def read(thread: int) -> None:
            tickets = [
                connection.far_read_start(region, 0, CHUNK, thread=thread) for _ in range(depth)
            ]
            for ticket in tickets:
                connection.far_read_complete(ticket, thread=thread)

        readers = [
            threading.Thread(target=read, args=(number,)) for number in range(options.threads)
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        print(json.dumps({"memory_bytes": connection.memory_bytes}))


if __name__ == "__main__":
    main()
