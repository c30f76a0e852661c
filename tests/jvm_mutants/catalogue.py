"""Bugs for the jar's Java code: in the keys of files, in their transactions, and in the ownership of checkpoints.

Each says which words of one source file it replaces, and which JUnit classes look for it. The words stand there exactly once;
`tests/unit/mutants/test_jvm_mutants.py` looks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.mutants.plant import TargetGone

ROOT = Path(__file__).parents[2]
MAIN = ROOT / "jvm_shim/src/main/java"
TEST = ROOT / "jvm_shim/src/test/java"
PACKAGE = "io/raftlake/spark"


@dataclass(frozen=True, slots=True)
class JvmMutant:
    """One planted bug. `file` and `tests` are relative to the package io.raftlake.spark."""

    name: str
    #: What it would do to users.
    source: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    @property
    def path(self) -> Path:
        return MAIN / PACKAGE / self.file

    def mutated(self) -> str:
        """The file with the bug. Raises TargetGone."""
        source = self.path.read_text(encoding="utf-8")
        found = source.count(self.before)
        if found != 1:
            raise TargetGone(f"{self.file}: found {found} times instead of once: {self.before!r}")
        return source.replace(self.before, self.after)


OWNER = ("checkpoint.OwnershipTest",)
MANAGER = ("checkpoint.CheckpointContractTest", "checkpoint.OwnershipTest")
LAYOUT = ("fs.LocationTest",)
NODES = ("fs.NodeTest",)
FILES = ("fs.FileSystemTest", "fs.FileContextTest", "fs.LimitsTest")
BLOBS = ("fs.BlobTest",)
LOST = ("fs.LostAnswersTest",)
EXCHANGE = ("quorum.ExchangeTest",)
HTTP = ("quorum.HttpKeySpaceTest",)

JVM_MUTANTS = (
    # --- who owns a checkpoint ---
    JvmMutant(
        "owner-is-not-compared",
        "an older run goes on writing beside the newer one",
        "checkpoint/Ownership.java",
        "        txn.compare(key, version);\n    }",
        "    }",
        OWNER,
    ),
    JvmMutant(
        "older-run-takes-the-checkpoint-back",
        "two drivers take the checkpoint from each other at every call",
        "checkpoint/Ownership.java",
        "if (version == UNKNOWN && run.isOfDriver()) {",
        "if (run.isOfDriver()) {",
        OWNER,
    ),
    JvmMutant(
        "lost-answer-of-the-takeover-is-believed",
        "a newer run took the checkpoint meanwhile, and this one takes that run's version for its own",
        "checkpoint/Ownership.java",
        "if (found.isEmpty() || !Arrays.equals(found.get().value(), mine)) {",
        "if (found.isEmpty()) {",
        OWNER,
    ),
    JvmMutant(
        "task-of-an-older-run-goes-on",
        "state of a fenced run is written by its executors",
        "checkpoint/Ownership.java",
        "        if (found.isPresent() && !isMine(found.get())) {",
        "        if (found.isPresent() && found.get().version() < 0) {",
        OWNER,
    ),
    JvmMutant(
        "existing-file-is-no-reason-to-look",
        "a fenced run takes the newer run's offsets for its own",
        "checkpoint/Ownership.java",
        "        if (run.isOfDriver()) {\n            confirm();\n        }",
        "",
        OWNER,
    ),
    JvmMutant(
        "metadata-of-an-operator-is-a-checkpoint",
        "state is owned apart from its checkpoint, and not fenced with it",
        "checkpoint/CheckpointRoot.java",
        'return facts.path("id").isTextual() ? facts.path("id").textValue() : null;',
        'return facts.path("id").asText();',
        OWNER,
    ),
    # --- files of checkpoints ---
    JvmMutant(
        "atomic-file-replaces-another",
        "two runs commit one batch",
        "checkpoint/CheckpointFiles.java",
        "createAtClose(file, overwriteIfPossible)",
        "createAtClose(file, true)",
        MANAGER,
    ),
    JvmMutant(
        "cancelled-file-appears",
        "a half-written offsets file is read at the next start",
        "checkpoint/CheckpointFiles.java",
        "            ((Abortable) underlyingStream()).abort();\n",
        "            try {\n                underlyingStream().close();\n            } catch (IOException no) {\n"
        "                throw sneaky(no);\n            }\n",
        MANAGER,
    ),
    JvmMutant(
        "expected-directory-is-not-compared",
        "a file is created in a directory that was deleted",
        "fs/Namespace.java",
        "            if (!deepest.location().isRoot()) {\n                txn.compare(",
        "            if (deepest.location().isRoot()) {\n                txn.compare(",
        (*FILES, *MANAGER),
    ),
    # --- the layout of keys ---
    JvmMutant(
        "percent-sign-stands-for-itself",
        "two names of files become one key",
        "fs/Location.java",
        "if (c == '%' || c < ' '",
        "if (c < ' '",
        LAYOUT,
    ),
    JvmMutant(
        "delete-sign-is-not-escaped", "a key that other tools cannot type", "fs/Location.java", " || c == 0x7F", "", LAYOUT
    ),
    JvmMutant("last-control-character", "U+001F stands in a key", "fs/Location.java", "c < ' ' ||", "c < 0x1F ||", LAYOUT),
    JvmMutant(
        "longest-key-is-refused",
        "a path of the allowed length fails",
        "fs/Location.java",
        "if (bytes > KeySpace.KEY_BYTES_MAX)",
        "if (bytes >= KeySpace.KEY_BYTES_MAX)",
        LAYOUT,
    ),
    JvmMutant(
        "parent-directory-escapes",
        "a path reaches another pipeline",
        "fs/Location.java",
        'if (component.equals(".") || component.equals(".."))',
        'if (component.equals("."))',
        LAYOUT,
    ),
    JvmMutant(
        "sibling-lies-below",
        "/a-b is taken for a part of /a",
        "fs/Location.java",
        "return key.startsWith(other.prefix());",
        "return key.startsWith(other.key);",
        LAYOUT,
    ),
    JvmMutant(
        "content-is-not-checked",
        "a flipped bit of an offsets file is believed",
        "fs/Node.java",
        'if (crc(content, 0, content.length) != facts.path("crc32c").longValue()) {',
        "if (crc(content, 0, content.length) < 0) {",
        NODES,
    ),
    # --- transactions of files ---
    JvmMutant(
        "deleted-tree-may-have-grown",
        "the blob of a file that another writer just created stays for ever",
        "fs/Deletions.java",
        "new Txn().comparePrefix(at.prefix(), below.isEmpty() ? 0 : listing.asOf())",
        "new Txn()",
        (*FILES, *LOST),
    ),
    JvmMutant(
        "file-is-deleted-whatever-stands-there-now",
        "a directory that another writer made in the place of a file loses its key, and its files stand nowhere",
        "fs/Deletions.java",
        "new Txn().compare(at.key(), version).delete(at.key());",
        "new Txn().delete(at.key());",
        LOST,
    ),
    JvmMutant(
        "file-that-changed-counts-as-deleted",
        "what another writer put there stays, and the deletion says that it is gone",
        "fs/Deletions.java",
        "if (put.isPresent() && deletePut(at, put.getAsLong())) {",
        "if (put.isPresent() && (deletePut(at, put.getAsLong()) || true)) {",
        LOST,
    ),
    JvmMutant(
        "large-file-is-deleted-without-its-content",
        "the blob of the file stays for good",
        "fs/Namespace.java",
        "if (intent == null && result.version() != 0) {",
        "if (result.version() != 0) {",
        (*BLOBS, *LOST),
    ),
    JvmMutant(
        "empty-directory-may-be-full",
        "a delete that is not recursive leaves files without a directory",
        "fs/Deletions.java",
        ".comparePrefix(at.prefix(), 0).delete(at.key())",
        ".delete(at.key())",
        FILES,
    ),
    JvmMutant(
        "moved-tree-may-have-grown",
        "a file that comes while its directory is renamed is lost",
        "fs/Moves.java",
        "txn.comparePrefix(source.prefix(), listing.asOf()).deletePrefix(source.prefix());",
        "txn.deletePrefix(source.prefix());",
        (*FILES, *LOST),
    ),
    JvmMutant(
        "one-more-descendant",
        "a directory of 501 entries is renamed, and the transaction is refused",
        "fs/Moves.java",
        "static final int DESCENDANTS_MAX = 500;",
        "static final int DESCENDANTS_MAX = 501;",
        FILES,
    ),
    # --- blobs ---
    JvmMutant(
        "pointer-without-its-intent",
        "a slow writer's file points to a blob that was collected",
        "fs/Namespace.java",
        "txn.compare(intent.key(), intent.version()).delete(intent.key());",
        "txn.delete(intent.key());",
        BLOBS,
    ),
    JvmMutant(
        "intent-stays",
        "the collector removes the blob of a file that is there",
        "fs/Namespace.java",
        "txn.compare(intent.key(), intent.version()).delete(intent.key());",
        "txn.compare(intent.key(), intent.version());",
        BLOBS,
    ),
    JvmMutant(
        "blob-is-not-checked",
        "damaged bytes of a snapshot are loaded",
        "fs/BlobReader.java",
        "if (!isRight(chunk, number)) {",
        "if (Node.crc(chunk, 0, chunk.length) != blob.chunkCrcs().get(0) && number == 0) {",
        BLOBS,
    ),
    JvmMutant(
        "replaced-blob-is-forgotten",
        "blobs of overwritten files fill the store for ever",
        "fs/Namespace.java",
        "List<Blobs.Garbage> garbage = blobs.discard(txn, plan.before());",
        "List<Blobs.Garbage> garbage = List.of();",
        BLOBS,
    ),
    JvmMutant(
        "young-blob-is-an-orphan",
        "the blob of a writer under way is collected",
        "fs/BlobCollector.java",
        "nowMs - stated.mtimeMs() > ageMs",
        "nowMs - stated.mtimeMs() > 0",
        BLOBS,
    ),
    JvmMutant(
        "last-byte-of-a-chunk",
        "a read that ends with a chunk gets a byte of the next one's place",
        "fs/Content.java",
        "int wanted = (int) (where / chunkBytes);",
        "int wanted = (int) ((where + 1) / chunkBytes);",
        BLOBS,
    ),
    # --- the quorum's answers ---
    JvmMutant(
        "lost-answer-is-a-failure",
        "a change that happened is reported as failed, and its writer makes it twice",
        "quorum/HttpKeySpace.java",
        "                return witness.holds(this) ? TxnResult.happened(0) : result;",
        "                return result;",
        HTTP,
    ),
    JvmMutant(
        "refusal-without-retry-after-is-no-doubt",
        "a 503 of a proxy is taken for a refusal, though the transaction happened",
        "quorum/Http.java",
        " || status == 503 && !hasRetryAfter",
        "",
        HTTP,
    ),
    JvmMutant(
        "connection-that-the-node-closed-is-asked",
        "after a restart of a node the first transaction there ends as unknown",
        "quorum/Exchange.java",
        "return !isQuiet;",
        "return false;",
        EXCHANGE,
    ),
    JvmMutant(
        "lost-answer-is-taken-for-an-unreachable-node",
        "a transaction that happened is sent again, and fails on itself",
        "quorum/Exchange.java",
        "if (context.getAttribute(HttpClientContext.HTTP_REQ_SENT) == null) {",
        "if (context.getAttribute(HttpClientContext.HTTP_REQ_SENT) != Boolean.FALSE) {",
        (*EXCHANGE, *HTTP),
    ),
    JvmMutant(
        "stop-of-a-query-waits-for-a-node-that-hangs",
        "a thread that waits for a plain socket is not interrupted",
        "quorum/Exchange.java",
        "return SocketChannel.open().socket();",
        "return new Socket();",
        EXCHANGE,
    ),
    JvmMutant(
        "keys-are-tidied-on-their-way",
        "another key is read than was asked for",
        "quorum/Exchange.java",
        ".setNormalizeUri(false)",
        ".setNormalizeUri(true)",
        (*EXCHANGE, *HTTP),
    ),
)
