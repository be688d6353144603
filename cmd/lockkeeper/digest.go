package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"golang.org/x/term"

	"lockkeeper/server/zoocfg"
)

const digestUsage = `Usage: lockkeeper digest [flags] USER

Prints USER:HASH, the digest identity of a user with a password. On a terminal it asks for
the password, twice, and does not show it; otherwise it reads the first line of standard
input. This makes a super user, whom no ACL stops:

	d=$(lockkeeper digest super) &&
	printf 'DigestAuthenticationProvider.superDigest=%s\n' "$d" >> zoo.cfg

in the zoo.cfg of every member. Clients prove to be that user with the password in clear:
"addauth digest super:PASSWORD" in zkCli, add_auth("digest", "super:PASSWORD") in kazoo,
-auth super:PASSWORD for 'lockkeeper cluster'. In an ACL, digest:USER:HASH is the same user.

Flags:
	-algorithm name   the hash, as in DigestAuthenticationProvider.digestAlg (default SHA1)

Exit status: 0; 1 no password could be read; 2 wrong command line.
`

func digest(args []string, e env) int {
	fs := flag.NewFlagSet("digest", flag.ContinueOnError)
	algorithm := fs.String("algorithm", "SHA1", "")
	if status, done := parseFlags(fs, digestUsage, args, e); done {
		return status
	}
	if fs.NArg() != 1 {
		return usageError("digest", e, "it takes one USER, not %d arguments", fs.NArg())
	}
	user := fs.Arg(0)
	if _, err := zoocfg.Digest(*algorithm, user, "any"); err != nil {
		return usageError("digest", e, "%v", err)
	}
	password, status := readPassword(user, e)
	if status != exitOK {
		return status
	}
	id, err := zoocfg.Digest(*algorithm, user, password)
	if err != nil {
		fmt.Fprintf(e.stderr, "lockkeeper digest: %v\n", err)
		return exitFailed
	}
	fmt.Fprintln(e.stdout, id)
	return exitOK
}

// maxPassword bounds what is read, in bytes.
const maxPassword = 64 << 10

// readPassword gets a password from the terminal or from the first line of standard input.
func readPassword(user string, e env) (password string, status int) {
	if !isTerminal(os.Stdin) {
		line, err := bufio.NewReader(io.LimitReader(os.Stdin, maxPassword)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			fmt.Fprintf(e.stderr, "lockkeeper digest: read the password: %v\n", err)
			return "", exitFailed
		}
		return strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"), exitOK
	}
	if password, status = askPassword("Password for "+user+": ", e); status != exitOK {
		return "", status
	}
	again, status := askPassword("The same again: ", e)
	if status == exitOK && again != password {
		fmt.Fprintln(e.stderr, "lockkeeper digest: the two passwords differ")
		status = exitFailed
	}
	return password, status
}

// askPassword prompts on the terminal without echo. A signal ends the prompt and restores the
// terminal.
func askPassword(prompt string, e env) (password string, status int) {
	fd := int(os.Stdin.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		fmt.Fprintf(e.stderr, "lockkeeper digest: %v\n", err)
		return "", exitFailed
	}
	fmt.Fprint(e.stderr, prompt)
	defer fmt.Fprintln(e.stderr)
	type answer struct {
		text []byte
		err  error
	}
	typed := make(chan answer, 1)
	go func() {
		text, err := term.ReadPassword(fd)
		typed <- answer{text, err}
	}()
	select {
	case a := <-typed:
		if a.err != nil {
			fmt.Fprintf(e.stderr, "\nlockkeeper digest: read the password: %v", a.err)
			return "", exitFailed
		}
		return string(a.text), exitOK
	case sig := <-e.signals: // the process ends, and with it the read
		_ = term.Restore(fd, before)
		if n, ok := sig.(syscall.Signal); ok {
			return "", exitSignal + int(n)
		}
		return "", exitFailed
	}
}
