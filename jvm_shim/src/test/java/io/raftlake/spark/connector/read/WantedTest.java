package io.raftlake.spark.connector.read;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.connector.TopicPartition;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.FieldReference;
import org.apache.spark.sql.connector.expressions.LiteralValue;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

@Tag("memory")
class WantedTest {
    private static final OffsetRange RANGE = new OffsetRange(new TopicPartition("t", 1), 10, 20);

    private static Predicate condition(String name, String column, DataType type, Object... values) {
        Expression[] children = new Expression[values.length + 1];
        children[0] = FieldReference.apply(column);
        for (int index = 0; index < values.length; index++) {
            children[index + 1] = new LiteralValue<>(values[index], type);
        }
        return new Predicate(name, children);
    }

    private static Wanted meeting(Predicate... conditions) {
        Wanted wanted = Wanted.ALL;
        for (Predicate condition : conditions) {
            wanted = wanted.meeting(condition);
        }
        return wanted;
    }

    private static Predicate offset(String name, Object... values) {
        return condition(name, "offset", DataTypes.LongType, values);
    }

    @Test
    void offsets() {
        assertEquals(RANGE, Wanted.ALL.narrow(RANGE));
        assertEquals(RANGE.within(13, 17), meeting(offset(">", 12L), offset("<", 17L)).narrow(RANGE));
        assertEquals(RANGE.within(12, 18), meeting(offset(">=", 12L), offset("<=", 17L)).narrow(RANGE));
        assertEquals(RANGE.within(12, 16), meeting(offset("IN", 15L, 12L)).narrow(RANGE));
        assertNull(meeting(offset("=", 20L)).narrow(RANGE));
        assertEquals(RANGE, meeting(offset("<=", Long.MAX_VALUE), offset(">=", Long.MIN_VALUE)).narrow(RANGE));
    }

    @Test
    void partitionsAndTopics() {
        Predicate one = condition("=", "partition", DataTypes.IntegerType, 1);
        Predicate others = condition("IN", "partition", DataTypes.IntegerType, 2, 3);
        assertEquals(RANGE, meeting(one).narrow(RANGE));
        assertNull(meeting(others).narrow(RANGE));
        assertEquals(Set.of(), meeting(one, others).partitions());
        assertNull(meeting(condition("<=>", "topic", DataTypes.StringType, UTF8String.fromString("u"))).narrow(RANGE));
        assertEquals(Wanted.ALL, meeting(condition(">", "partition", DataTypes.IntegerType, 5)), "Spark applies it alone");
    }

    @Test
    void times() {
        Wanted wanted = meeting(condition(">", "timestamp", DataTypes.TimestampType, 5L),
                condition("<=", "timestamp", DataTypes.TimestampType, 9L));
        assertEquals(6, wanted.usMin());
        assertEquals(9, wanted.usMax());
    }

    @Test
    void whatIsNotUnderstoodLeavesEverything() {
        assertFalse(Wanted.takes(offset("=", (Object) null)));
        assertFalse(Wanted.takes(offset("IN", 1L, null)));
        assertFalse(Wanted.takes(new Predicate("IS_NOT_NULL", new Expression[] {FieldReference.apply("offset")})));
        assertFalse(Wanted.takes(offset("<>", 1L)));
        assertFalse(Wanted.takes(condition("=", "value", DataTypes.BinaryType, new byte[0])));
        assertFalse(Wanted.takes(condition("=", "offset", DataTypes.IntegerType, 1)));
        assertTrue(Wanted.takes(offset("=", 1L)));
    }
}
