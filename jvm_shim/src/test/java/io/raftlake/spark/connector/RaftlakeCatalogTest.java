package io.raftlake.spark.connector;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.raftlake.spark.log.ScriptedListener;
import java.io.IOException;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A catalog of a scripted node, whose topic is t. */
@Tag("memory")
@Timeout(60)
class RaftlakeCatalogTest {
    private static final Identifier TABLE = Identifier.of(new String[0], "t");

    private ScriptedListener node;
    private RaftlakeCatalog catalog;

    @BeforeEach
    void start() throws IOException {
        node = new ScriptedListener();
        catalog = new RaftlakeCatalog();
        catalog.initialize("raftlake", new CaseInsensitiveStringMap(Map.of("bootstrap.servers", node.servers())));
    }

    @AfterEach
    void stop() throws IOException {
        node.close();
    }

    private StagedTable stage() throws Exception {
        return catalog.stageCreate(TABLE, info());
    }

    private static TableInfo info() {
        TableInfo.Builder info = new TableInfo.Builder();
        return info.withColumns(new Column[0]).withPartitions(new Transform[0]).withProperties(Map.of()).build();
    }

    @Test
    void aStatementThatFailsTakesItsTopicAway() throws Exception {
        node.dropTopic();
        StagedTable staged = stage();
        assertTrue(node.hasTopic());
        staged.abortStagedChanges();
        assertFalse(node.hasTopic());
        assertEquals(1, node.deletions());
        staged.abortStagedChanges();
    }

    @Test
    void aStatementThatFailsLeavesAnotherTopicOfTheName() throws Exception {
        node.dropTopic();
        StagedTable staged = stage();
        node.recreateTopic();
        staged.abortStagedChanges();
        assertTrue(node.hasTopic());
    }

    @Test
    void aTopicThatSomebodyElseHasMadeMeanwhileIsNotTaken() {
        node.dropTopic();
        node.createBefore();
        assertThrows(TableAlreadyExistsException.class, this::stage);
        node.dropTopic();
        node.createBefore();
        assertThrows(TableAlreadyExistsException.class, () -> catalog.createTable(TABLE, info()));
        assertTrue(node.hasTopic());
    }

    @Test
    void aTopicWhoseMakerIsUnknownStays() throws Exception {
        node.dropTopic();
        node.loseCreation();
        stage().abortStagedChanges();
        assertTrue(node.hasTopic());
        assertEquals(0, node.deletions());
    }

    @Test
    void theCallsOfACatalogShareTheirConnections() throws Exception {
        catalog.listTables(new String[0]);
        int before = node.connections();
        for (int call = 0; call < 3; call++) {
            catalog.listTables(new String[0]);
            catalog.loadTable(TABLE).properties();
        }
        assertEquals(before, node.connections());
    }
}
