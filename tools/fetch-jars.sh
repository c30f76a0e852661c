# Sourced by the tools that fetch jars. `fetch DIRECTORY ARTIFACT...` copies jars from Maven Central into .cache/DIRECTORY.
# An artifact is GROUP:NAME:VERSION or GROUP:NAME:VERSION:CLASSIFIER.
# A directory appears only when it is complete; a second run does nothing until its list changes.
# Every jar is copied by name (`dependency:copy` reads no POM of it): some parent POMs name repositories that not every
# network reaches, and a pinned list is the same on every machine.

fetch() {
    local directory=.cache/$1 items='' artifact group name version classifier
    shift
    [ "$(cat "$directory/complete" 2>/dev/null)" = "$*" ] && return
    tools/need java mvn
    rm -rf "$directory.part" "$directory"
    mkdir -p "$directory.part"
    for artifact in "$@"; do
        IFS=: read -r group name version classifier <<<"$artifact"
        items+="<artifactItem><groupId>$group</groupId><artifactId>$name</artifactId><version>$version</version>"
        items+="${classifier:+<classifier>$classifier</classifier>}</artifactItem>"
    done
    cat >"$directory.part/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>raftlake</groupId><artifactId>fetch</artifactId><version>1</version><packaging>pom</packaging>
  <build><plugins><plugin>
    <groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId><version>3.8.1</version>
    <configuration><outputDirectory>\${project.basedir}</outputDirectory><artifactItems>$items</artifactItems></configuration>
  </plugin></plugins></build>
</project>
POM
    echo "fetching ${directory#.cache/} ($# jars)"
    for attempt in 1 2 3; do
        mvn -q -B -f "$directory.part/pom.xml" dependency:copy >"$directory.part/log" 2>&1 && break
        [ "$attempt" -lt 3 ] || { cat "$directory.part/log" >&2; exit 1; }
    done
    for artifact in "$@"; do
        IFS=: read -r group name version classifier <<<"$artifact"
        [ -s "$directory.part/$name-$version${classifier:+-$classifier}.jar" ] || { echo "$artifact did not come" >&2; exit 1; }
    done
    rm "$directory.part/log" "$directory.part/pom.xml"
    echo "$*" >"$directory.part/complete"
    mv "$directory.part" "$directory"
}
