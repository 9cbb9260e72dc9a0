"""A request to stop after some steps."""

from lightning_modules.errors import StopRequest


class StopAfter(StopRequest):
    """As if SIGTERM came during a step."""

    def __init__(self, step):
        super().__init__()
        self.step = step

    def on_line(self, step, line):
        self.received |= step >= self.step
