package attack

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// A Port is the port that an attack comes in by.
type Port string

const (
	ClientPort Port = "client"
	PeerPort   Port = "peer"
	HTTPPort   Port = "HTTP"
	// Process is no port: something happens to the member's process itself.
	Process Port = "process"
)

// An Attack is one kind of request that somebody without any right can send, and the member's
// expected reaction.
type Attack struct {
	// Name is a noun, in small letters and dashes.
	Name string
	Port Port
	// Sends describes in one line the attacker's requests.
	Sends string
	// Leader says that the member that leads is attacked; else it is one that follows.
	Leader bool
	// Disk says that the attack aims at lasting damage: afterwards all members are killed and
	// started again from their disks.
	Disk bool
	// Stops says that the attacked member serves nobody meanwhile, and rightly.
	Stops bool
	// Settings are lines for the members' zoo.cfg, if not the defaults are attacked: attacks with
	// the same ones, one behind the other, share a cluster. Only lockkeeper gets them.
	Settings []string
	// Certificate says that the client port speaks TLS, too. ZooKeeper is not attacked.
	Certificate bool
	// Ours says that only lockkeeper has the target of the attack.
	Ours bool
	// May are the outcomes that the attacker may see. Any other one fails the attack.
	May []string
	// Least is the number of outcomes that the attacker has to see, and LeastBytes the number of
	// bytes that it has to send, for the attack to count as played.
	Least      int
	LeastBytes int64

	// play plays the attack, in rounds, until ctx ends, and at least one round. An error says why
	// the attack did not have its intended form.
	play func(ctx context.Context, p *Play) error
}

// All are all attacks, in the order in which they are played.
func All() []Attack {
	return slices.Concat(requests(), buffers(), floods(), secured(), peers(), others(), neighbours(), web(), limits(), tenants())
}

// Choose returns the attacks of those names, or all without any, but those that are excepted.
func Choose(only, except []string) ([]Attack, error) {
	all := All()
	var names []string
	for _, a := range all {
		names = append(names, a.Name)
	}
	for _, name := range slices.Concat(only, except) {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("attack: there is no %q; there are %s", name, strings.Join(names, ", "))
		}
	}
	return slices.DeleteFunc(all, func(a Attack) bool {
		return len(only) > 0 && !slices.Contains(only, a.Name) || slices.Contains(except, a.Name)
	}), nil
}
