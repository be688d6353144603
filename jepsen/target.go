package jepsen

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A Target is the server software under test. Both targets read the same configuration file, so
// that a test says nothing about which of them it runs against.
type Target struct {
	// Name is "lockkeeper" or "zookeeper".
	Name string

	// command is the command line that runs one member in the foreground.
	command func(configFile string) *exec.Cmd
	// tool is its program for operators; nil if it has none.
	tool func(args ...string) *exec.Cmd
}

// Command is the command line that runs one member in the foreground, for tests that start members
// without StartCluster.
func (t Target) Command(configFile string) *exec.Cmd { return t.command(configFile) }

// Tool is the target's program for operators with those arguments, or nil if it has none.
func (t Target) Tool(args ...string) *exec.Cmd {
	if t.tool == nil {
		return nil
	}
	return t.tool(args...)
}

// at is the target at a place.
func (t Target) at(p Place) Target {
	if len(p.enter) == 0 {
		return t
	}
	here := t.command
	t.command = func(configFile string) *exec.Cmd {
		args := append(slices.Clone(p.enter), here(configFile).Args...)
		return exec.Command(args[0], args[1:]...)
	}
	return t
}

// Lockkeeper is the target that runs the given lockkeeper binary.
func Lockkeeper(binary string) Target {
	return Target{
		Name: "lockkeeper",
		command: func(configFile string) *exec.Cmd {
			return exec.Command(binary, "serve", configFile)
		},
		tool: func(args ...string) *exec.Cmd { return exec.Command(binary, args...) },
	}
}

// javaDir is where Debian's packages put their jars.
const javaDir = "/usr/share/java"

// ZooKeeper is the target that runs the real ZooKeeper of Debian's packages (written for 3.8.0), to
// compare with. If it is not installed, it returns an error that names the missing packages. Its
// JVM starts quickly and is slow. It gets more options of the JVM for settings that zoo.cfg does
// not have.
func ZooKeeper(options ...string) (Target, error) {
	return zookeeper(slices.Concat(javaFlags(), []string{"-Xmx256m"}, options)...)
}

// StockZooKeeper is ZooKeeper with the JVM that zkServer.sh gives it: its heap, the JVM's own
// choice of garbage collector, and the whole compiler. To be measured. It gets more options of the
// JVM; a heap among them replaces that one.
func StockZooKeeper(options ...string) (Target, error) {
	return zookeeper(append([]string{"-Xmx1000m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"}, options...)...)
}

// zookeeper is ZooKeeper with those options of the JVM.
func zookeeper(flags ...string) (Target, error) {
	run, err := javaProgram([]string{"zookeeper.jar", "slf4j-simple.jar", "netty-codec.jar", "netty-resolver.jar"},
		append(flags, "-Dzookeeper.admin.enableServer=false", "-Dzookeeper.jmx.log4j.disable=true"),
		"org.apache.zookeeper.server.quorum.QuorumPeerMain")
	return Target{Name: "zookeeper", command: func(configFile string) *exec.Cmd { return run(configFile) }}, err
}

// JavaTool returns how to run one of the programs in ZooKeeper's jar (of Debian's package) by the
// name of its class, with more options of the JVM. They log nothing.
func JavaTool(class string, options ...string) (func(args ...string) *exec.Cmd, error) {
	return javaProgram([]string{"zookeeper.jar", "slf4j-nop.jar"}, slices.Concat(javaFlags(), []string{"-Xmx128m"}, options), class)
}

// CuratorProgram returns how to run a Java source file that uses Curator (of Debian's packages).
func CuratorProgram(source string) (func(args ...string) *exec.Cmd, error) {
	return javaProgram(curatorJars, append(javaFlags(), "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"),
		source)
}

// javaProgram returns how to run a Java program, a class or a source file, with some jars.
func javaProgram(jars, flags []string, program string) (func(args ...string) *exec.Cmd, error) {
	java, err := findJava("java")
	if err != nil {
		return nil, err
	}
	path, err := classPath(jars...)
	if err != nil {
		return nil, err
	}
	command := append(flags, "-cp", path, program)
	return func(args ...string) *exec.Cmd { return exec.Command(java, append(slices.Clone(command), args...)...) }, nil
}

// javaFlags make a short-lived Java process start quickly and use few threads: a test starts many
// of them on few cores.
func javaFlags() []string {
	return []string{
		"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto",
		"-Dorg.slf4j.simpleLogger.showDateTime=true",
		"-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
	}
}

// Errors of this package are ErrMissing (errors.Is) when a worker or a target needs something that
// is not installed. The message names it, and the Debian package that has it.
var ErrMissing = errors.New("not installed")

// findJava finds a program of the JDK.
func findJava(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("jepsen: %s: %w (apt-get install default-jdk-headless)", program, ErrMissing)
	}
	return path, nil
}

// classPath joins jars of javaDir, and directories.
func classPath(jars ...string) (string, error) {
	path := slices.Clone(jars)
	for i, jar := range jars {
		if !filepath.IsAbs(jar) {
			jar = filepath.Join(javaDir, jar)
		}
		path[i] = jar
		if _, err := os.Stat(jar); err != nil {
			return "", fmt.Errorf("jepsen: %s: %w (apt-get install libcurator-recipes-java zookeeper)", jar, ErrMissing)
		}
	}
	return strings.Join(path, string(os.PathListSeparator)), nil
}

// curatorJars are the jars of a program that uses Curator.
var curatorJars = []string{"curator-recipes.jar", "curator-framework.jar", "curator-client.jar",
	"zookeeper.jar", "zookeeper-jute.jar", "guava.jar", "slf4j-simple.jar"}
