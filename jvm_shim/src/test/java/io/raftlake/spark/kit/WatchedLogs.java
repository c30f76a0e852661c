package io.raftlake.spark.kit;

import io.raftlake.spark.log.Logs;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

/** Logs that note each call before they make it: what was asked for, and whether the thread that made this asked. */
public final class WatchedLogs {
    /** One call; {@code offset} is -1 for all but fetches. */
    public record Asked(String method, long offset, boolean isHere) {}

    /** What happens before an answer. */
    @FunctionalInterface
    public interface Before {
        void answer(Asked asked) throws Exception;
    }

    private final List<Asked> asked = new CopyOnWriteArrayList<>();
    private final Logs logs;

    public WatchedLogs(Logs logs, Before before) {
        Thread here = Thread.currentThread();
        this.logs = (Logs) Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {Logs.class}, (self, method, args) -> {
            boolean isFetch = method.getName().equals("fetch");
            Asked call = new Asked(method.getName(), isFetch ? (long) args[1] : -1, Thread.currentThread() == here);
            asked.add(call);
            before.answer(call);
            try {
                return method.invoke(logs, args);
            } catch (InvocationTargetException thrown) {
                throw thrown.getCause();
            }
        });
    }

    public WatchedLogs(Logs logs) {
        this(logs, call -> {});
    }

    public Logs logs() {
        return logs;
    }

    public List<Asked> asked() {
        return List.copyOf(asked);
    }

    public List<Asked> fetches() {
        return asked.stream().filter(call -> call.method().equals("fetch")).toList();
    }

    public void forget() {
        asked.clear();
    }
}
