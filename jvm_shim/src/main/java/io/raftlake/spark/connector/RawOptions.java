package io.raftlake.spark.connector;

import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/**
 * Options as texts: known names only, looked up without regard to case, and read as numbers, flags, times. What cannot be used
 * is an IllegalArgumentException that names the option.
 */
public final class RawOptions {
    private static final Pattern DURATION = Pattern.compile("([0-9]+)\\s*(ms|s|m|min|h|d)?");
    private static final Map<String, Long> UNIT_MS =
            Map.of("ms", 1L, "s", 1000L, "m", 60_000L, "min", 60_000L, "h", 3_600_000L, "d", 86_400_000L);
    private static final Pattern NUMBER = Pattern.compile("[0-9]{1,18}");

    private final Map<String, String> values = new LinkedHashMap<>();

    /**
     * All names are known: {@code meaningful}, {@code withoutEffect}, settings of clients, or behind {@code prefix} (or null).
     */
    public RawOptions(Map<String, String> raw, List<String> meaningful, List<String> withoutEffect, String prefix) {
        List<String> known = Stream.of(meaningful, withoutEffect, OptionNames.CLIENT_SETTINGS,
                OptionNames.CLIENT_SETTINGS_WITHOUT_EFFECT).flatMap(List::stream).toList();
        List<String> lowerKnown = known.stream().map(RawOptions::lower).toList();
        raw.forEach((name, value) -> values.put(lower(name), value.strip()));
        for (String name : raw.keySet()) {
            String lower = lower(name);
            if (OptionNames.REFUSED.containsKey(lower)) {
                throw Errors.unsupportedOption(lower, OptionNames.REFUSED.get(lower));
            }
            if (OptionNames.REFUSED_PREFIXES.stream().anyMatch(lower::startsWith)) {
                throw Errors.unsupportedOption(lower, OptionNames.NO_SECURITY);
            }
            boolean isBehind = prefix != null && lower.startsWith(prefix) && !lower.equals(prefix);
            if (!isBehind && !lowerKnown.contains(lower)) {
                throw Errors.unknownOption(name, known);
            }
        }
        String protocol = get(OptionNames.SECURITY_PROTOCOL);
        if (protocol != null && !protocol.equalsIgnoreCase("PLAINTEXT")) {
            throw Errors.unsupportedOption(OptionNames.SECURITY_PROTOCOL, OptionNames.NO_SECURITY);
        }
    }

    private static String lower(String name) {
        return name.toLowerCase(Locale.ROOT);
    }

    /** The value, or null. */
    public String get(String name) {
        return values.get(lower(name));
    }

    /** Those of some options that are given. */
    public List<String> given(Collection<String> candidates) {
        return candidates.stream().filter(name -> values.containsKey(lower(name))).toList();
    }

    /** The options whose names begin with a prefix, without it, by name. */
    public Map<String, String> behind(String prefix) {
        Map<String, String> found = new TreeMap<>();
        values.forEach((name, value) -> {
            if (name.startsWith(prefix)) {
                found.put(name.substring(prefix.length()), value);
            }
        });
        return found;
    }

    /** The one option that is given of several that exclude one another; null for none. */
    public String onlyOne(List<String> candidates) {
        List<String> given = given(candidates);
        if (given.size() > 1) {
            throw Errors.exclusiveOptions(given);
        }
        return given.isEmpty() ? null : given.get(0);
    }

    /** A whole number above 0; null where the option is not given. */
    public Long positive(String name) {
        String value = get(name);
        if (value != null && (!NUMBER.matcher(value).matches() || Long.parseLong(value) == 0)) {
            throw Errors.wrongValue(name, value, "a whole number above 0");
        }
        return value == null ? null : Long.valueOf(value);
    }

    /** As {@link #positive(String)}, with a default. */
    public long positive(String name, long otherwise) {
        Long value = positive(name);
        return value == null ? otherwise : value;
    }

    /** A whole number, 0 included. */
    public long count(String name, long otherwise) {
        String value = get(name);
        if (value != null && !NUMBER.matcher(value).matches()) {
            throw Errors.wrongValue(name, value, "a whole number, 0 or above");
        }
        return value == null ? otherwise : Long.parseLong(value);
    }

    public boolean flag(String name, boolean otherwise) {
        String value = get(name);
        if (value != null && !value.equalsIgnoreCase("true") && !value.equalsIgnoreCase("false")) {
            throw Errors.wrongValue(name, value, "true or false");
        }
        return value == null ? otherwise : value.equalsIgnoreCase("true");
    }

    /** One of these words, in lower case. */
    public String choice(String name, List<String> allowed, String otherwise) {
        String value = get(name);
        if (value != null && !allowed.contains(lower(value))) {
            throw Errors.wrongValue(name, value, "one of " + String.join(", ", allowed));
        }
        return value == null ? otherwise : lower(value);
    }

    /** Of an option that is given. */
    public long timestampMs(String name) {
        String value = get(name);
        if (!NUMBER.matcher(value).matches()) {
            throw Errors.wrongValue(name, value, "milliseconds since 1970");
        }
        return Long.parseLong(value);
    }

    public long durationMs(String name, long otherwiseMs) {
        String value = get(name);
        if (value == null) {
            return otherwiseMs;
        }
        Matcher parts = DURATION.matcher(lower(value));
        if (!parts.matches() || !NUMBER.matcher(parts.group(1)).matches()) {
            throw Errors.wrongValue(name, value, "a duration such as 15m or 500ms");
        }
        return Long.parseLong(parts.group(1)) * UNIT_MS.get(parts.group(2) == null ? "ms" : parts.group(2));
    }
}
