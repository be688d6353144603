package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"lockkeeper/server"
)

// manCommand writes the help of all commands as manual pages, for packages.
type manCommand struct{ noFlags }

func (manCommand) run(e env, args []string) error {
	if len(args) == 0 {
		return wrongUsage("it needs a directory, such as /usr/share/man/man1")
	}
	if err := os.MkdirAll(args[0], 0o755); err != nil {
		return err
	}
	write := func(name, short, help string) error {
		f, err := os.Create(filepath.Join(args[0], name+".1"))
		if err != nil {
			return err
		}
		defer f.Close()
		if err := writeManual(f, name, short, help); err != nil {
			return err
		}
		return f.Close()
	}
	const short = "a coordination server that speaks ZooKeeper's client protocol"
	if err := write("lockkeeper", short, page("main")); err != nil {
		return err
	}
	for _, c := range commands() {
		if err := write("lockkeeper-"+c.name, c.short(), c.help()); err != nil {
			return err
		}
	}
	return nil
}

// writeManual formats a help text for man(1). Lines that a tab begins stay as they are; the other
// ones are paragraphs.
func writeManual(w io.Writer, name, short, help string) error {
	var b strings.Builder
	escape := strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"lockkeeper %s\" \"lockkeeper\"\n.SH NAME\n%s \\- %s\n",
		strings.ToUpper(name), server.BuildInfo().Version, escape(name), escape(short))
	usage, text, found := strings.Cut(help, "\n\n")
	if synopsis, ok := strings.CutPrefix(usage, "Usage: "); found && ok {
		fmt.Fprintf(&b, ".SH SYNOPSIS\n.nf\n%s\n.fi\n", escape(strings.ReplaceAll(synopsis, "\n       ", "\n")))
	} else {
		text = help
	}
	b.WriteString(".SH DESCRIPTION\n")
	verbatim := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		indented := strings.HasPrefix(line, "\t")
		if line != "" && indented != verbatim {
			b.WriteString(map[bool]string{true: ".RS 4\n.nf\n", false: ".fi\n.RE\n"}[indented])
			verbatim = indented
		}
		title, rest, isTitle := strings.Cut(line, ":")
		switch isTitle = isTitle && !indented && (rest == "" || title == "Exit status") &&
			!strings.Contains(title, ","); {
		case line == "":
			b.WriteString(".PP\n")
		case isTitle:
			fmt.Fprintf(&b, ".SH %s\n", escape(strings.ToUpper(title)))
			line = strings.TrimSpace(rest)
			fallthrough
		default:
			line = escape(strings.TrimPrefix(line, "\t"))
			if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
				line = `\&` + line
			}
			if line != "" {
				b.WriteString(line + "\n")
			}
		}
	}
	if verbatim {
		b.WriteString(".fi\n.RE\n")
	}
	if name != "lockkeeper" {
		b.WriteString(".SH SEE ALSO\n.BR lockkeeper (1)\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
