package io.raftlake.hooks;

import io.raftlake.spark.QuorumStateStoreProvider;
import io.raftlake.spark.RaftlakeFileSystem;
import io.raftlake.spark.log.Logs;
import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import org.apache.hadoop.conf.Configuration;

/** The product's state store, with a stop before and after each append to a changelog ({@link Stop}). */
public final class PausingState extends QuorumStateStoreProvider {
    @Override
    protected Logs logs(RaftlakeFileSystem fileSystem, Configuration conf) throws IOException {
        Logs logs = super.logs(fileSystem, conf);
        return (Logs) Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {Logs.class}, (proxy, call, with) -> {
            boolean isAppend = call.getName().equals("append");
            try {
                if (isAppend) {
                    Stop.reach(conf, "before-state");
                }
                Object result = call.invoke(logs, with);
                if (isAppend) {
                    Stop.reach(conf, "after-state");
                }
                return result;
            } catch (InvocationTargetException failed) {
                throw failed.getCause();
            }
        });
    }
}
