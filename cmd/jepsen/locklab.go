package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"lockkeeper/jepsen"
)

// lockLabPatience is how long the lab may take to end its servers when it is called off.
const lockLabPatience = 30 * time.Second

// runLockLab is the command lock-lab: it builds the program of jepsen/locklab
// with dependencies of its own, and runs it in this process's place.
func runLockLab(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	status := exitUsage
	err := inScratch(func(dir string) error {
		binary, err := buildLockLab(ctx, dir)
		if err != nil {
			return err
		}
		cmd := exec.Command(binary, args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, stdout, stderr
		p, err := jepsen.StartProcess("lock-lab", cmd, filepath.Join(dir, "lock-lab.log"))
		if err != nil {
			return err
		}
		select {
		case <-p.Done():
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockLabPatience)
			defer cancel()
			if err := p.Stop(ctx); err != nil {
				return err
			}
		}
		var exit *exec.ExitError
		if errors.As(p.Err(), &exit) {
			if status = exit.ExitCode(); status < 0 { // a signal
				status = exitUsage
			}
			return nil
		}
		status = exitOK
		return p.Err()
	})
	if err != nil {
		if ctx.Err() != nil {
			err = errors.New("called off")
		}
		fmt.Fprintf(stderr, "jepsen lock-lab: %v\n", err)
		return exitUsage
	}
	return status
}

// buildLockLab builds the program into a directory. The current directory has to be in this module,
// where the sources are.
func buildLockLab(ctx context.Context, dir string) (string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "lockkeeper")
	var errs bytes.Buffer
	list.Stderr = &errs
	root, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("where are the sources? %w\n%s", err, errs.Bytes())
	}
	binary := filepath.Join(dir, "lock-lab")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, ".")
	build.Dir = filepath.Join(strings.TrimSpace(string(root)), "jepsen", "locklab")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", build.Dir, err, out)
	}
	return binary, nil
}
