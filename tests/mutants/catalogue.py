"""The planted bugs, by where they are planted. `make mutants` proves that each is found."""

from __future__ import annotations

from tests.mutants.catalogue_checkpoints import CHECKPOINTS
from tests.mutants.catalogue_checkpoints_logged import LOGGED_STATE
from tests.mutants.catalogue_compaction import COMPACTION
from tests.mutants.catalogue_compaction_log import COMPACTION_FILES, COMPACTION_READERS, COMPACTION_RULES
from tests.mutants.catalogue_configs import CONFIGS
from tests.mutants.catalogue_connector import CONNECTOR
from tests.mutants.catalogue_core import CORE
from tests.mutants.catalogue_corrections import CORRECTIONS
from tests.mutants.catalogue_damage import DAMAGE
from tests.mutants.catalogue_driver import DRIVER
from tests.mutants.catalogue_front import FRONT
from tests.mutants.catalogue_hastened import HASTENED
from tests.mutants.catalogue_hostile_apply import HOSTILE_APPLY
from tests.mutants.catalogue_hostile_bounds import HOSTILE_BOUNDS
from tests.mutants.catalogue_hostile_descriptors import HOSTILE_DESCRIPTORS
from tests.mutants.catalogue_hostile_details import HOSTILE_DETAILS
from tests.mutants.catalogue_hostile_front import HOSTILE_FRONT
from tests.mutants.catalogue_hostile_leaps import HOSTILE_LEAPS
from tests.mutants.catalogue_hostile_line import HOSTILE_LINE
from tests.mutants.catalogue_hostile_local import HOSTILE_LOCAL, LOCAL_SETTINGS
from tests.mutants.catalogue_hostile_producers import HOSTILE_PRODUCERS
from tests.mutants.catalogue_hostile_repeats import HOSTILE_REPEATS
from tests.mutants.catalogue_hostile_space import HOSTILE_SPACE
from tests.mutants.catalogue_hostile_spoilt import HOSTILE_SPOILT
from tests.mutants.catalogue_hostile_work import HOSTILE_WORK
from tests.mutants.catalogue_in_sync import IN_SYNC_BUGS
from tests.mutants.catalogue_kafka_answers import KAFKA_ANSWERS
from tests.mutants.catalogue_kv_ranges import KV_RANGES
from tests.mutants.catalogue_log_start import LOG_START, SMALL_WORDS
from tests.mutants.catalogue_partitions import PARTITIONS
from tests.mutants.catalogue_producers import PRODUCERS
from tests.mutants.catalogue_retention import RETENTION_BY_TIME
from tests.mutants.catalogue_retired_epochs import RETIRED_EPOCHS
from tests.mutants.catalogue_review_client_calls import REVIEW_CLIENT_CALLS
from tests.mutants.catalogue_review_client_outcomes import REVIEW_CLIENT_OUTCOMES
from tests.mutants.catalogue_review_clients import REVIEW_CLIENTS
from tests.mutants.catalogue_review_closed import REVIEW_CLOSED
from tests.mutants.catalogue_review_cluster_ids import REVIEW_CLUSTER_IDS
from tests.mutants.catalogue_review_connector import REVIEW_CONNECTOR
from tests.mutants.catalogue_review_core import REVIEW_CORE
from tests.mutants.catalogue_review_hosting import REVIEW_HOSTING
from tests.mutants.catalogue_review_ops import REVIEW_OPS
from tests.mutants.catalogue_review_runtime import REVIEW_RUNTIME
from tests.mutants.catalogue_review_storage import REVIEW_STORAGE
from tests.mutants.catalogue_review_tier import REVIEW_TIER
from tests.mutants.catalogue_runtime import RUNTIME
from tests.mutants.catalogue_shown import SHOWN_BATCHES
from tests.mutants.catalogue_sink import SINKS
from tests.mutants.catalogue_storage import STORAGE
from tests.mutants.catalogue_tier import TIER
from tests.mutants.catalogue_tier_adopt_delta import TIER_ADOPT_DELTA
from tests.mutants.catalogue_tier_adoption import TIER_ADOPTION
from tests.mutants.catalogue_tier_boundaries import TIER_BOUNDARIES
from tests.mutants.catalogue_tier_connector import TIER_CONNECTOR
from tests.mutants.catalogue_tier_consumers import TIER_CONSUMERS
from tests.mutants.catalogue_tier_follower import TIER_FOLLOWER_BUGS
from tests.mutants.catalogue_tier_foreign import TIER_FOREIGN
from tests.mutants.catalogue_tier_history import TIER_HISTORY
from tests.mutants.catalogue_tier_reads import TIER_READS
from tests.mutants.catalogue_tier_recover import TIER_RECOVER
from tests.mutants.catalogue_tier_retention import TIER_RETENTION
from tests.mutants.catalogue_tier_review import TIER_REVIEW
from tests.mutants.catalogue_tier_told import TIER_TOLD
from tests.mutants.catalogue_tiering import TIERING_BUGS
from tests.mutants.catalogue_transaction_version import TRANSACTION_VERSION
from tests.mutants.catalogue_transactions_at_partitions import TRANSACTIONS_AT_PARTITIONS
from tests.mutants.catalogue_transactions_coordinator import TRANSACTIONS_COORDINATOR
from tests.mutants.catalogue_transactions_log import TRANSACTIONS_LOG
from tests.mutants.catalogue_wholeness import REFETCHED_LOGS
from tests.mutants.plant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *CORE,
    *DRIVER,
    *DAMAGE,
    *PRODUCERS,
    *SINKS,
    *STORAGE,
    *FRONT,
    *HASTENED,
    *HOSTILE_APPLY,
    *HOSTILE_BOUNDS,
    *HOSTILE_DESCRIPTORS,
    *HOSTILE_DETAILS,
    *HOSTILE_FRONT,
    *HOSTILE_LEAPS,
    *HOSTILE_LINE,
    *HOSTILE_LOCAL,
    *LOCAL_SETTINGS,
    *HOSTILE_PRODUCERS,
    *HOSTILE_REPEATS,
    *HOSTILE_SPACE,
    *HOSTILE_SPOILT,
    *HOSTILE_WORK,
    *RETENTION_BY_TIME,
    *LOG_START,
    *SMALL_WORDS,
    *IN_SYNC_BUGS,
    *RUNTIME,
    *SHOWN_BATCHES,
    *TIERING_BUGS,
    *TRANSACTIONS_AT_PARTITIONS,
    *TRANSACTIONS_COORDINATOR,
    *TIER_FOLLOWER_BUGS,
    *TIER_ADOPTION,
    *TIER_ADOPT_DELTA,
    *TIER,
    *TIER_CONSUMERS,
    *TIER_FOREIGN,
    *TIER_HISTORY,
    *TIER_READS,
    *TIER_RECOVER,
    *TIER_RETENTION,
    *TIER_BOUNDARIES,
    *TIER_REVIEW,
    *TIER_TOLD,
    *TIER_CONNECTOR,
    *TRANSACTIONS_LOG,
    *RETIRED_EPOCHS,
    *TRANSACTION_VERSION,
    *KAFKA_ANSWERS,
    *CONNECTOR,
    *CORRECTIONS,
    *PARTITIONS,
    *CONFIGS,
    *COMPACTION,
    *COMPACTION_RULES,
    *COMPACTION_READERS,
    *COMPACTION_FILES,
    *REFETCHED_LOGS,
    *KV_RANGES,
    *CHECKPOINTS,
    *LOGGED_STATE,
    *REVIEW_CLIENT_CALLS,
    *REVIEW_CLIENTS,
    *REVIEW_CONNECTOR,
    *REVIEW_CLIENT_OUTCOMES,
    *REVIEW_CLOSED,
    *REVIEW_CLUSTER_IDS,
    *REVIEW_CORE,
    *REVIEW_HOSTING,
    *REVIEW_OPS,
    *REVIEW_STORAGE,
    *REVIEW_RUNTIME,
    *REVIEW_TIER,
)

#: They die within a few seeds; the last ones, by tests of a few seconds.
SAMPLE = (
    "count-self-before-sync",
    "acknowledge-before-majority",
    "read-without-proof",
    "vote-not-saved",
    "vote-without-log-check",
    "epoch-history-not-cut",
    "duplicate-after-failover",
    "follower-read-without-wait",
    "forwarded-batch-taken-for-a-nodes-own",
    "quota-blind-to-what-is-under-way",
    "creations-of-one-turn-counted-apart",
)

_BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


def find(name: str) -> Mutant:
    """Raises LookupError for a name that is not in the catalogue."""
    if name not in _BY_NAME:
        raise LookupError(f"no mutant {name!r}; there are: {', '.join(_BY_NAME)}")
    return _BY_NAME[name]
