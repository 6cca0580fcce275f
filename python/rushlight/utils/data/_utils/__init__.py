"""What a DataLoader and its workers share: collating, fetching, the worker's loop, pinning."""
from . import collate, fetch, pin_memory, processes, worker

MP_STATUS_CHECK_INTERVAL = worker.MP_STATUS_CHECK_INTERVAL
__all__ = ["collate", "fetch", "pin_memory", "processes", "worker", "MP_STATUS_CHECK_INTERVAL"]
