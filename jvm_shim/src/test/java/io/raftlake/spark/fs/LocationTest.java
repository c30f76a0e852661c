package io.raftlake.spark.fs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.List;
import org.apache.hadoop.fs.PathIOException;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

@Tag("memory")
class LocationTest {
    @Test
    void keysAreAFixedFormat() throws IOException {
        assertEquals("/fs/orders", Location.of("orders", "/").key());
        assertEquals("/fs/orders/main/offsets/0", Location.of("orders", "/main/offsets/0").key());
        assertEquals("/fs/p/a:b c=d%25 e%0A%7F/ä\uD83D\uDE00", Location.of("p", "/a:b c=d% e\n\u007F/ä\uD83D\uDE00").key());
    }

    @Test
    void controlCharactersAreEscapedAndTheirNeighboursAreNot() throws IOException {
        assertEquals("/fs/p/%00%1F !~%7F\u0080", Location.of("p", "/\u0000\u001f !~\u007F\u0080").key());
    }

    @Test
    void aNameComesBackAsItWas() throws IOException {
        for (String name : List.of("a", "%", "%41", "a%zz", "\u0001\u001f", "ä ü", "\uD83D\uDE00", "..a", "...")) {
            Location at = Location.of("p", "/d/" + name);
            assertEquals(name, at.name());
            assertEquals("/d/" + name, at.path());
            assertEquals(at, Location.of("p", "/d").child(name));
        }
    }

    @Test
    void familyOfLocations() throws IOException {
        Location root = Location.of("p", "/");
        Location file = Location.of("p", "/d/f");
        assertTrue(root.isRoot());
        assertEquals("", root.name());
        assertEquals("/", root.path());
        assertEquals(Location.of("p", "/d"), file.parent());
        assertEquals(root, file.parent().parent());
        assertThrows(IllegalStateException.class, root::parent);
        assertTrue(file.isBelow(root));
        assertFalse(Location.of("p", "/dd").isBelow(Location.of("p", "/d")));
        assertFalse(file.isBelow(file));
    }

    @Test
    void whatIsNoNameIsRefused() {
        for (String path : List.of("/../x", "/a/../../x", "/./a", "/\uD83D")) {
            assertThrows(PathIOException.class, () -> Location.of("p", path), path);
        }
    }

    @Test
    void aKeyThatIsTooLongIsRefusedWithBothLengths() throws IOException {
        String longest = "/" + "x".repeat(1024 - "/fs/p/".length());
        assertEquals(1024, Location.of("p", longest).key().length());
        String told = assertThrows(PathIOException.class, () -> Location.of("p", longest + "ä")).getMessage();
        assertTrue(told.contains("1026") && told.contains("1024"), told);
    }

    @Test
    void namesOfPipelines() throws IOException {
        assertEquals("A.b_c-9", Location.requirePipeline("A.b_c-9"));
        for (String name : new String[] {null, "", "a/b", "a b", "x".repeat(65), "..", "a:1", "u@h"}) {
            String told = assertThrows(IOException.class, () -> Location.requirePipeline(name)).getMessage();
            assertTrue(told.contains("raftlake://orders/main"), told);
        }
    }
}
