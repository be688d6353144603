package main

import (
	"fmt"
	"strings"

	"lockkeeper/server/zoocfg"
)

// helpConfig lists the keys of a configuration file, or describes those that are named.
func helpConfig(names []string, e env) int {
	if len(names) == 0 {
		fmt.Fprint(e.stdout, configKeyList())
		return exitOK
	}
	status := exitOK
	for i, name := range names {
		key, ok := zoocfg.FindKey(name)
		if !ok && strings.HasSuffix(name, ".N") { // a family, as the list names it
			key, ok = zoocfg.FindKey(strings.TrimSuffix(name, "N") + "1")
		}
		if !ok {
			nearest, _ := zoocfg.NearestKey(name)
			fmt.Fprintf(e.stderr, "lockkeeper: no configuration key %q\nDid you mean: lockkeeper help config %s\n", name, nearest)
			status = exitUsage
			continue
		}
		if i > 0 {
			fmt.Fprintln(e.stdout)
		}
		fmt.Fprint(e.stdout, describeKey(key))
	}
	if status != exitOK {
		fmt.Fprintln(e.stderr, "'lockkeeper help config' lists the keys.")
	}
	return status
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
	b.WriteString("'lockkeeper help config KEY' describes one of them.\n")
	return b.String()
}

// helpWidth is where the lines of a description end at the latest, as in the other help texts.
const helpWidth = 90

func describeKey(k zoocfg.Key) string {
	var b strings.Builder
	line := func(label, text string) {
		if text != "" {
			fmt.Fprintf(&b, "\t%-11s %s\n", label, text)
		}
	}
	fmt.Fprintf(&b, "%s\n", k.Name)
	line("type", k.Type)
	line("unit", k.Unit)
	line("default", k.Default)
	if k.ZooKeeper == "" {
		line("ZooKeeper", "has no such key: it is lockkeeper's own")
	} else {
		line("ZooKeeper", k.ZooKeeper)
	}
	b.WriteString("\n")
	for _, l := range wrap(k.Effect, helpWidth-8) {
		fmt.Fprintf(&b, "\t%s\n", l)
	}
	return b.String()
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
	return append(lines, line)
}
