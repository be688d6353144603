package kazoosuite

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// excludedText is excluded.txt, which says itself how it is to be read.
//
//go:embed excluded.txt
var excludedText string

// exclusion is a test of kazoo's that is not expected to pass.
type exclusion struct {
	test    string
	target  string // for lockkeeper or for zookeeper
	servers string // with one or three
	reason  string
}

// parseExcluded reads the format of excluded.txt.
func parseExcluded(text string) ([]exclusion, error) {
	var all []exclusion
	var targets, servers []string
	var reason strings.Builder
	number := 0
	for line := range strings.Lines(text) {
		number++
		fault := func(what string) ([]exclusion, error) {
			return nil, fmt.Errorf("excluded.txt:%d: %s: %s", number, what, strings.TrimSpace(line))
		}
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) == "":
			targets, servers = nil, nil
			reason.Reset()
		case strings.HasPrefix(line, "\t"):
			if targets == nil || reason.Len() == 0 {
				return fault("a test without a reason before it")
			}
			for _, target := range targets {
				for _, n := range servers {
					e := exclusion{test: strings.TrimSpace(line), target: target, servers: n, reason: reason.String()}
					if slices.ContainsFunc(all, func(o exclusion) bool {
						return o.test == e.test && o.target == e.target && o.servers == e.servers
					}) {
						return fault("listed twice")
					}
					all = append(all, e)
				}
			}
		default:
			if targets != nil {
				// The reason goes on.
				reason.WriteString(" " + strings.TrimSpace(line))
				continue
			}
			where, why, ok := strings.Cut(line, ": ")
			if !ok {
				return fault("no reason")
			}
			for _, word := range strings.Split(where, ", ") {
				switch word {
				case "lockkeeper", "zookeeper":
					targets = append(targets, word)
				case "one", "three":
					servers = append(servers, word)
				default:
					return fault("unknown word " + word)
				}
			}
			if targets == nil || servers == nil {
				return fault("for which software, and for how many servers")
			}
			reason.WriteString(why)
		}
	}
	return all, nil
}

// excluded are the tests that must not pass, with the reasons.
func excluded(t *testing.T, target, servers string) map[string]string {
	t.Helper()
	all, err := parseExcluded(excludedText)
	if err != nil {
		t.Fatal(err)
	}
	reasons := make(map[string]string)
	for _, e := range all {
		if e.target == target && e.servers == servers {
			reasons[e.test] = e.reason
		}
	}
	return reasons
}

func TestParseExcluded(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"# all\n\nlockkeeper, one: is\nso\n\ta::b\n\tc::d\n",
			"a::b lockkeeper one is so|c::d lockkeeper one is so"},
		{"lockkeeper, zookeeper, three: why\n\ta\n\nlockkeeper, one: other\n\ta\n",
			"a lockkeeper three why|a zookeeper three why|a lockkeeper one other"},
		{"\ta\n", "excluded.txt:1: a test without a reason before it: a"},
		{"lockkeeper, one: why\n\ta\n\ta\n", "excluded.txt:3: listed twice: a"},
		{"lockkeeper: why\n\ta\n", "excluded.txt:1: for which software, and for how many servers: lockkeeper: why"},
		{"lockkeeper, two: why\n", "excluded.txt:1: unknown word two: lockkeeper, two: why"},
		{"lockkeeper, one\n", "excluded.txt:1: no reason: lockkeeper, one"},
	} {
		all, err := parseExcluded(c.text)
		words := make([]string, len(all))
		for i, e := range all {
			words[i] = strings.Join([]string{e.test, e.target, e.servers, e.reason}, " ")
		}
		got := strings.Join(words, "|")
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q:\n got %s\nwant %s", c.text, got, c.want)
		}
	}
}
