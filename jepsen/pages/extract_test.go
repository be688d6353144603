package pages

import (
	"regexp"
	"strings"
	"testing"
)

// A block is some lines of a page that are commands.
type block struct {
	page  string // relative to the module
	line  int    // of its first command
	fence string // the language of a fenced block; "indented"
	text  string
}

// programs are the first words of commands. A line that begins with another word is no command.
var programs = regexp.MustCompile(
	`^\(?(lockkeeper|\./lockkeeper|go|\./test|\./release|jepsen/compare\.sh|curl|docker|kubectl|systemctl|install|mkdir|umask|openssl|export|for|echo|printf)\s`)

// blocks are the commands in fenced blocks of shell, in fenced blocks without a language that begin
// with a program, and in indented ones that do.
func blocks(page, markdown string) (all []block) {
	const fence = "```"
	var now *block
	end := func() {
		if now != nil && (now.fence == "sh" || now.fence == "bash" || (now.fence == "" || now.fence == "indented") &&
			programs.MatchString(now.text)) {
			all = append(all, *now)
		}
		now = nil
	}
	indent, number := 0, 0
	for line := range strings.Lines(markdown) {
		number++
		trimmed := strings.TrimLeft(line, " ")
		depth := len(line) - len(trimmed)
		switch language, isFence := strings.CutPrefix(strings.TrimSpace(line), fence); {
		case isFence && now != nil && now.fence != "indented":
			end()
		case isFence:
			end()
			now, indent = &block{page: page, line: number + 1, fence: language}, depth
		case now != nil && now.fence != "indented":
			now.text += line[min(indent, depth):]
		case depth >= 4 && now == nil && programs.MatchString(trimmed):
			now = &block{page: page, line: number, fence: "indented", text: trimmed}
		case depth >= 4 && now != nil:
			now.text += trimmed
		default:
			end()
		}
	}
	end()
	return all
}

var codeSpan = regexp.MustCompile("`([^`]+)`")

// spans are the commands within sentences.
func spans(page, markdown string) (all []block) {
	number, fenced := 0, false
	for line := range strings.Lines(markdown) {
		number++
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if fenced {
			continue
		}
		for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
			if programs.MatchString(m[1] + " ") {
				all = append(all, block{page: page, line: number, fence: "span", text: m[1]})
			}
		}
	}
	return all
}

// commands are the command lines of a block, without those that continue one.
func (b block) commands() (lines []string) {
	open := ""
	for line := range strings.Lines(b.text) {
		open += strings.TrimSuffix(strings.TrimRight(line, "\n"), "\\")
		if strings.HasSuffix(strings.TrimRight(line, "\n"), "\\") {
			continue
		}
		if open = strings.TrimSpace(open); open != "" && !strings.HasPrefix(open, "#") {
			lines = append(lines, open)
		}
		open = ""
	}
	return lines
}

// words splits a command line as a shell does, as far as the pages need it. It ends at a comment or
// an operator.
func words(line string) (all []string) {
	var word strings.Builder
	quote, some := rune(0), false
	end := func() {
		if some {
			all = append(all, word.String())
		}
		word.Reset()
		some = false
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, some = r, true
		case r == ' ':
			end()
		case r == '#' && !some, strings.ContainsRune("|&;<>()", r):
			end()
			return all
		default:
			some = true
			word.WriteRune(r)
		}
	}
	end()
	return all
}

func TestExtract(t *testing.T) {
	const page = "Text `lockkeeper ls -r /` and `lockkeeper.lock`.\n\n    lockkeeper a 'b c' # d\n    go e \\\n      f\n\n```\nx=y\n```\n" +
		"- item\n\n  ```sh\n  echo g; h\n  ```\n    more of it\n\n    a = b\n"
	got := blocks("p", page)
	if len(got) != 2 || got[0].line != 3 || got[1].text != "echo g; h\n" || got[1].line != 13 {
		t.Fatalf("%+v", got)
	}
	if lines := got[0].commands(); len(lines) != 2 || strings.Join(words(lines[0]), "|") != "lockkeeper|a|b c" || lines[1] != "go e f" {
		t.Errorf("%q", lines)
	}
	if got := spans("p", page); len(got) != 1 || got[0].text != "lockkeeper ls -r /" || got[0].line != 1 {
		t.Errorf("%+v", got)
	}
}
