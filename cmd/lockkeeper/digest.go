package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"lockkeeper/server/zoocfg"
)

type digestCommand struct {
	algorithm string
	sasl      bool
}

func (c *digestCommand) flags(fs *flag.FlagSet, _ env) {
	fs.StringVar(&c.algorithm, "algorithm", "SHA1",
		"`name` the hash, as in DigestAuthenticationProvider.digestAlg (default SHA1)")
	fs.BoolVar(&c.sasl, "sasl", false, "print a line for the file of saslUsersFile instead")
}

func (c *digestCommand) run(e env, args []string) error {
	if len(args) != 1 {
		return wrongUsage("it takes one USER, not %d arguments", len(args))
	}
	user := args[0]
	if _, err := c.entry(user, "any"); err != nil {
		return usageError{err}
	}
	password, err := readPassword(user, e)
	if err != nil {
		return err
	}
	entry, err := c.entry(user, password)
	if err != nil {
		return err
	}
	fmt.Fprintln(e.stdout, entry)
	return nil
}

// entry is the line that the command prints.
func (c *digestCommand) entry(user, password string) (string, error) {
	if c.sasl {
		return zoocfg.SASLEntry(user, password)
	}
	return zoocfg.Digest(c.algorithm, user, password)
}

// maxPassword bounds the bytes that the command reads.
const maxPassword = 64 << 10

// readPassword gets a password from the terminal or from the first line of standard input.
func readPassword(user string, e env) (string, error) {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		line, err := bufio.NewReader(io.LimitReader(os.Stdin, maxPassword)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("read the password: %w", err)
		}
		return strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"), nil
	}
	password, err := askPassword("Password for "+user+": ", e)
	if err != nil {
		return "", err
	}
	again, err := askPassword("The same again: ", e)
	if err == nil && again != password {
		err = errors.New("the two passwords differ")
	}
	return password, err
}

// askPassword prompts on the terminal without echo. A signal ends the prompt and restores the
// terminal.
func askPassword(prompt string, e env) (string, error) {
	fd := int(os.Stdin.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", err
	}
	fmt.Fprint(e.stderr, prompt)
	defer fmt.Fprintln(e.stderr)
	type answer struct {
		text []byte
		err  error
	}
	typed, sig := untilSignal(e, 0, func(context.Context) answer {
		text, err := term.ReadPassword(fd)
		return answer{text, err}
	})
	if sig != nil { // the process ends, and with it the read
		_ = term.Restore(fd, before)
		return "", signalStatus(sig)
	}
	if typed.err != nil {
		return "", fmt.Errorf("read the password: %w", typed.err)
	}
	return string(typed.text), nil
}
