package jepsen

import (
	"context"
	"fmt"
	"os/exec"
)

// Command is the command line that runs one member in the foreground, for one
// who starts members in another way than StartCluster does.
func (t Target) Command(configFile string) *exec.Cmd { return t.command(configFile) }

// JavaTool returns how to run one of the programs in ZooKeeper's jar (of
// Debian's package) by the name of its class. They log nothing.
func JavaTool(class string) (func(args ...string) *exec.Cmd, error) {
	java, err := findJava("java")
	if err != nil {
		return nil, err
	}
	jars, err := classPath("zookeeper.jar", "slf4j-nop.jar")
	if err != nil {
		return nil, err
	}
	return func(args ...string) *exec.Cmd {
		return exec.Command(java, append(append(javaFlags(), "-Xmx128m", "-cp", jars, class), args...)...)
	}, nil
}

// Run runs a program to its end, its output appended to the file logPath, and
// kills it when ctx ends. Like members and workers it does not outlive the
// caller. It returns an error, with the end of the output, if the program does
// not succeed.
func Run(ctx context.Context, name string, cmd *exec.Cmd, logPath string) error {
	p, err := StartProcess(name, cmd, logPath)
	if err != nil {
		return err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		if err := p.Kill(); err != nil {
			return err
		}
		return fmt.Errorf("jepsen: %s was killed: %w; the end of its log:\n%s", name, ctx.Err(), p.LogTail(2048))
	}
	if p.err != nil {
		return p.ExitError()
	}
	return nil
}

// CuratorProgram returns how to run a Java source file that uses Curator (of Debian's packages).
func CuratorProgram(source string) (func(args ...string) *exec.Cmd, error) {
	java, err := findJava("java")
	if err != nil {
		return nil, err
	}
	jars, err := curatorClassPath()
	if err != nil {
		return nil, err
	}
	return func(args ...string) *exec.Cmd {
		return exec.Command(java, append(append(javaFlags(), "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", jars, source), args...)...)
	}, nil
}
