package main

import (
	"cmp"
	"embed"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"lockkeeper/bench"
	"lockkeeper/server"
	"lockkeeper/server/zoocfg"
)

type helpCommand struct{ noFlags }

func (helpCommand) run(e env, args []string) error {
	if len(args) == 0 {
		fmt.Fprint(e.stdout, page("main"))
		return nil
	}
	if args[0] == "config" {
		return helpConfig(e, args[1:])
	}
	c, ok := findCommand(args[0])
	if !ok {
		return exitStatus(unknownCommand(args[0], e))
	}
	fmt.Fprint(e.stdout, c.help())
	return nil
}

// pages are the help texts, one for each command, and main.
//
//go:embed help/*.txt
var pages embed.FS

func page(name string) string {
	text, err := pages.ReadFile("help/" + name + ".txt")
	if err != nil {
		panic(err) // it is embedded
	}
	return string(text)
}

// help is the help text of a command: its page, with the flags below the line "Flags:", and the
// workloads of bench below "Workloads:".
func (c command) help() string {
	var flags [][2]string
	c.flagSet(env{}).VisitAll(func(f *flag.Flag) {
		value, text := usageOf(f)
		flags = append(flags, [2]string{strings.TrimSpace("-" + f.Name + " " + value), text})
	})
	return strings.NewReplacer("\nFlags:\n", "\nFlags:\n"+described(flags),
		"\nWorkloads:\n", "\nWorkloads:\n"+described(bench.Workloads())).Replace(page(c.name))
}

// usageOf splits the usage of a flag into the name of its value and the text; see runner.
func usageOf(f *flag.Flag) (value, text string) {
	if value, text, ok := strings.Cut(strings.TrimPrefix(f.Usage, "`"), "` "); ok {
		return value, text
	}
	return "", f.Usage
}

// short is the first clause of the help text, for completion and manual pages.
func (c command) short() string {
	_, text, _ := strings.Cut(page(c.name), "\n\n")
	for _, end := range []string{". ", ", ", ": ", "; "} {
		text, _, _ = strings.Cut(strings.Join(strings.Fields(text), " "), end)
	}
	return strings.TrimRight(text, ".:")
}

// described formats a list of names and descriptions. A name without a description is left out.
func described(list [][2]string) string {
	width := 0
	for _, l := range list {
		width = max(width, len(l[0]))
	}
	var b strings.Builder
	for _, l := range list {
		name := l[0]
		for _, line := range wrap(l[1], helpWidth-10-width) {
			fmt.Fprintf(&b, "\t%-*s  %s\n", width, name, line)
			name = ""
		}
	}
	return b.String()
}

// maxTypos is the greatest edit distance at which a name counts as a misspelling of a command.
const maxTypos = 2

func unknownCommand(name string, e env) int {
	fmt.Fprintf(e.stderr, "lockkeeper: unknown command %q\n", name)
	nearest, edits := zoocfg.Nearest(name, func(yield func(string) bool) {
		for _, c := range commands() {
			if !yield(c.name) {
				return
			}
		}
	})
	switch _, err := os.Stat(name); {
	case err == nil:
		fmt.Fprintf(e.stderr, "To start a member with that configuration file: lockkeeper serve %s\n", name)
	case edits <= maxTypos:
		fmt.Fprintf(e.stderr, "Did you mean: lockkeeper %s\n", nearest)
	}
	fmt.Fprintln(e.stderr, "'lockkeeper help' lists the commands.")
	return exitUsage
}

func helpConfig(e env, names []string) error {
	if len(names) == 0 {
		fmt.Fprint(e.stdout, configKeyList())
		return nil
	}
	var wrong error
	for i, name := range names {
		key, ok := zoocfg.FindKey(name)
		if !ok && strings.HasSuffix(name, ".N") { // a family, as the list names it
			key, ok = zoocfg.FindKey(strings.TrimSuffix(name, "N") + "1")
		}
		if !ok {
			nearest, _ := zoocfg.NearestKey(name)
			fmt.Fprintf(e.stderr, "lockkeeper: no configuration key %q\nDid you mean: lockkeeper help config %s\n",
				name, nearest)
			wrong = exitStatus(exitUsage)
			continue
		}
		if i > 0 {
			fmt.Fprintln(e.stdout)
		}
		fmt.Fprint(e.stdout, describeKey(key))
	}
	if wrong != nil {
		fmt.Fprintln(e.stderr, "'lockkeeper help config' lists the keys.")
	}
	return wrong
}

// keyClasses are the headings of the list.
var keyClasses = []struct {
	class zoocfg.KeyClass
	title string
}{
	{zoocfg.KeyUsed, "Keys that have an effect:"},
	{zoocfg.KeyRefused, "Keys that ask for protection that is missing, and so stop the start:"},
	{zoocfg.KeyMissing, "Keys that ask for something else that is missing, and get a warning:"},
	{zoocfg.KeyIneffective, "ZooKeeper's keys that have no effect here:"},
}

func configKeyList() string {
	var b strings.Builder
	for _, c := range keyClasses {
		fmt.Fprintf(&b, "%s\n\n", c.title)
		for _, k := range zoocfg.Keys() {
			if k.Class == c.class {
				fmt.Fprintf(&b, "\t%s\n", k.Name)
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("'lockkeeper help config KEY' describes one of them; 'lockkeeper config check FILE' checks a file.\n")
	return b.String()
}

// helpWidth is the width of the help texts, in columns; a tab counts 8.
const helpWidth = 90

func describeKey(k zoocfg.Key) string {
	return k.Name + "\n" + described([][2]string{
		{"type", k.Type}, {"unit", k.Unit}, {"default", k.Default},
		{"ZooKeeper", cmp.Or(k.ZooKeeper, "has no such key: it is lockkeeper's own")},
	}) + "\n\t" + strings.Join(wrap(k.Effect, helpWidth-8), "\n\t") + "\n"
}

// wrap breaks a text between words into lines of at most width bytes, unless one word is longer.
func wrap(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

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
