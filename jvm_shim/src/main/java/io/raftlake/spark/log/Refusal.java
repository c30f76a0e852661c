package io.raftlake.spark.log;

/** An error code in an answer of a node, and what the node said beside it. */
final class Refusal extends Exception {
    private static final long serialVersionUID = 1;

    private final transient Code code;

    Refusal(Code code, String told) {
        super(told == null || told.isEmpty() ? code.name() : code + ": " + told);
        this.code = code;
    }

    Code code() {
        return code;
    }

    static void unlessNone(Code code, String told) throws Refusal {
        if (code != Code.NONE) {
            throw new Refusal(code, told);
        }
    }
}
