package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"lockkeeper/cmd/lockkeeper/internal/contexts"
	"lockkeeper/recipes"
	"lockkeeper/server"
)

// completionCommand prints the script with which a shell completes command lines of lockkeeper. The
// script runs the hidden command __complete, which cobra has.
type completionCommand struct{ noFlags }

var shells = []string{"bash", "zsh", "fish"}

func (completionCommand) run(e env, args []string) error {
	if len(args) == 0 {
		return wrongUsage("say for which shell: %s", strings.Join(shells, ", "))
	}
	root := newRoot(e, new(int))
	switch args[0] {
	case "bash":
		return root.GenBashCompletionV2(e.stdout, true)
	case "zsh":
		return root.GenZshCompletion(e.stdout)
	case "fish":
		return root.GenFishCompletion(e.stdout, true)
	}
	return wrongUsage("%q is not one of %s", args[0], strings.Join(shells, ", "))
}

// completionPatience is the time that a server has to answer while somebody waits for the shell.
const completionPatience = 2 * time.Second

// complete returns the words that may stand at the place of toComplete, behind args.
func (c command) complete(e env, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	fs := c.flagSet(e)
	rest, flagName := c.split(fs, e, args)
	client, _ := c.runner.(interface{ client() *clientFlags })
	switch {
	case flagName == "may-stop":
		return fromServer(client.client(), members), cobra.ShellCompDirectiveNoFileComp
	case flagName == "context":
		return beginningWith(append(e.contextNames(), defaultContext), toComplete), cobra.ShellCompDirectiveNoFileComp
	case flagName != "", c.runsAnother() && len(rest) > 0:
		return nil, cobra.ShellCompDirectiveDefault
	case strings.HasPrefix(toComplete, "-"):
		return flagNames(fs, toComplete), cobra.ShellCompDirectiveNoFileComp
	}
	switch {
	case len(rest) == 0 && len(c.words) > 0:
		return beginningWith(c.words, toComplete), cobra.ShellCompDirectiveNoFileComp
	case len(rest) == 0 && c.takesPath:
		return fromServer(client.client(), func(ctx context.Context, conn *zk.Conn) []string {
			return beginningWith(children(conn, toComplete), toComplete)
		}), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	case c.name == "cluster" && len(rest) > 0 && (rest[0] == "remove" || rest[0] == "transfer-leader"):
		return fromServer(client.client(), members), cobra.ShellCompDirectiveNoFileComp
	case c.name == "context" && len(rest) == 1 && rest[0] == "use":
		return beginningWith(append(e.contextNames(), defaultContext), toComplete), cobra.ShellCompDirectiveNoFileComp
	case c.name == "context" && len(rest) == 1 && rest[0] == "remove":
		return beginningWith(e.contextNames(), toComplete), cobra.ShellCompDirectiveNoFileComp
	case c.name == "cluster" || c.name == "context" || c.takesPath || c.maxArgs <= len(rest):
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// contextNames are the user's contexts, each with its servers. There are none if their file is
// faulty.
func (e env) contextNames() (list []string) {
	f, err := e.contexts()
	if err != nil {
		return nil
	}
	for i := range f.Contexts {
		list = append(list, f.Contexts[i].Name+"\t"+f.Contexts[i].Get(contexts.Servers))
	}
	return list
}

// split parses the beginning of a command line as far as it is right. It returns the arguments that
// are no flags, and the name of the last flag if that has no value yet.
func (c command) split(fs *flag.FlagSet, e env, args []string) (rest []string, flagName string) {
	rest, err := c.parse(fs, args)
	if err == nil || len(args) == 0 {
		return rest, ""
	}
	name := strings.TrimLeft(args[len(args)-1], "-")
	if rest, err = c.parse(c.flagSet(e), args[:len(args)-1]); err == nil && fs.Lookup(name) != nil {
		return rest, name
	}
	return rest, ""
}

// flagNames are the flags that begin with a text, which has one dash or two.
func flagNames(fs *flag.FlagSet, text string) (list []string) {
	dashes := "-"
	if strings.HasPrefix(text, "--") {
		dashes = "--"
	}
	fs.VisitAll(func(f *flag.Flag) {
		_, usage := usageOf(f)
		list = append(list, dashes+f.Name+"\t"+usage)
	})
	return beginningWith(list, text)
}

func beginningWith(list []string, text string) (some []string) {
	for _, one := range list {
		if strings.HasPrefix(one, text) {
			some = append(some, one)
		}
	}
	return some
}

// fromServer reads words from the cluster that the flags and the environment name. There are none
// if that fails: nobody wants an error at a press of the tab key.
func fromServer(f *clientFlags, read func(context.Context, *zk.Conn) []string) (list []string) {
	ctx, cancel := context.WithTimeout(context.Background(), completionPatience)
	defer cancel()
	c, err := f.connect(recipes.Config{})
	if err != nil {
		return nil
	}
	defer c.Close()
	_ = within(ctx, func() error {
		if err := c.Reach(ctx); err != nil {
			return err
		}
		list = read(ctx, c.Conn().(*zk.Conn))
		return nil
	})
	if ctx.Err() != nil {
		return nil // read may still be writing
	}
	return list
}

// children are the paths of the nodes beside the one that a path begins.
func children(conn *zk.Conn, path string) (paths []string) {
	dir := path[:strings.LastIndexByte(path, '/')+1]
	if dir == "" {
		dir = "/"
	}
	names, _, err := conn.Children("/" + strings.Trim(dir, "/"))
	if err != nil {
		return nil
	}
	for _, name := range names {
		paths = append(paths, dir+name)
	}
	return paths
}

// members are the numbers of the members, each with its address.
func members(_ context.Context, conn *zk.Conn) (list []string) {
	data, _, err := conn.Get("/zookeeper/config")
	if err != nil {
		return nil
	}
	ms, _, _ := server.ParseConfigText(string(data))
	for _, m := range ms {
		list = append(list, fmt.Sprintf("%d\t%s", m.ID, m.PeerAddr()))
	}
	return list
}
