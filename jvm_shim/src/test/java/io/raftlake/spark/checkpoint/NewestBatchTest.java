package io.raftlake.spark.checkpoint;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;

/** What a driver may say of a batch without asking: no, and only where it is sure. */
class NewestBatchTest {
    private final NewestBatch newest = new NewestBatch();

    @Test
    void nothingIsKnownBeforeAList() {
        assertFalse(newest.isAbsent("0"));
        newest.created("7");
        assertFalse(newest.isAbsent("8"));
    }

    @Test
    void aBatchAboveAllThatWereListedIsAbsent() {
        newest.listed(List.of("9", "10", "8"));
        assertTrue(newest.isAbsent("11"));
        assertTrue(newest.isAbsent("1000000000000"));
        // Those below may be there: deletions are not followed.
        assertFalse(newest.isAbsent("10"));
        assertFalse(newest.isAbsent("0"));
    }

    @Test
    void aBatchBelowTheNewestIsOld() {
        assertFalse(newest.isOld("0"));
        newest.created("9");
        assertTrue(newest.isOld("8"));
        assertFalse(newest.isOld("9"));
        newest.created("11.compact");
        assertTrue(newest.isOld("10"));
        assertFalse(newest.isOld("9.compact"));
        assertFalse(newest.isOld("08"));
        assertFalse(newest.isOld("tmp"));
    }

    @Test
    void inAnEmptyLogEveryBatchIsAbsent() {
        newest.listed(List.of());
        assertTrue(newest.isAbsent("0"));
    }

    @Test
    void whatWasCreatedIsNotAbsent() {
        newest.listed(List.of("0"));
        newest.created("1");
        assertFalse(newest.isAbsent("1"));
        assertTrue(newest.isAbsent("2"));
    }

    /** The list began before the file was created, and ends after it. */
    @Test
    void aListThatMissedANewFileDoesNotHideIt() {
        newest.created("3");
        newest.listed(List.of("0", "1", "2"));
        assertFalse(newest.isAbsent("3"));
        newest.created("4");
        newest.listed(List.of("0", "1", "2", "3"));
        assertFalse(newest.isAbsent("4"));
        assertTrue(newest.isAbsent("5"));
    }

    @Test
    void namesThatAreNoBatchesAreAskedFor() {
        newest.listed(List.of("0", "5.compact", "metadata"));
        for (String name : List.of("metadata", "9.compact.tmp", ".compact", "09", "-1", "", "1234567890123456789", "\u0663")) {
            assertFalse(newest.isAbsent(name), name);
        }
        assertTrue(newest.isAbsent("6"));
    }

    @Test
    void aCompactedBatchIsABatch() {
        newest.listed(List.of("8", "9.compact"));
        assertFalse(newest.isAbsent("9"));
        assertFalse(newest.isAbsent("9.compact"));
        assertTrue(newest.isAbsent("10"));
        assertTrue(newest.isAbsent("19.compact"));
        newest.created("19.compact");
        assertFalse(newest.isAbsent("19"));
    }
}
