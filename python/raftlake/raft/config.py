"""The timing of one Raft group. Relations between the settings are checked when the value is built."""

from __future__ import annotations

from dataclasses import dataclass

from raftlake.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """Milliseconds everywhere; the names are KIP-595's (`quorum.election.timeout.ms` is `election_timeout_ms`)."""

    #: An election that has no winner after a random time in [election_timeout_ms, 2 x election_timeout_ms) is over.
    election_timeout_ms: int = 1000
    #: A follower that its leader has not answered for this long starts a pre-vote.
    fetch_timeout_ms: int = 2000
    #: Upper bound of the random wait before the pre-vote of a follower whose leader's connection closed, and of the very
    #: first pre-vote of a node that starts without knowing a leader.
    election_jitter_ms_max: int = 50
    #: Wait before a failed request is sent again.
    retry_backoff_ms: int = 20
    #: Upper bound of the wait that EndQuorumEpoch imposes on lower-ranked successors.
    retry_backoff_ms_max: int = 1000
    #: A request without an answer for this long has failed.
    request_timeout_ms: int = 2000
    #: A leader of static voters puts them into the log once it knows all their directory ids (kraft.version 1, KIP-853). Off in
    #: quorums with nodes that have to stay at kraft.version 0.
    voters_in_log: bool = True

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if name.endswith(("_ms", "_ms_max")) and getattr(self, name) <= 0:
                raise ConfigError(f"quorum.{name}: must be a positive number of milliseconds, got {getattr(self, name)}")
        if self.retry_backoff_ms > self.retry_backoff_ms_max:
            raise ConfigError("quorum.retry.backoff.ms must not exceed quorum.retry.backoff.max.ms")
        if self.election_jitter_ms_max > self.election_timeout_ms:
            raise ConfigError("quorum.election.jitter.max.ms must not exceed quorum.election.timeout.ms")

    @property
    def check_quorum_timeout_ms(self) -> int:
        """A leader that a majority has not fetched from for this long resigns (1.5 x fetch timeout)."""
        return self.fetch_timeout_ms * 3 // 2
