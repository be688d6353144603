package quorum

import "time"

const (
	// paceFew is how many commands are too few to wait for each other: what one frame for all of them saves is little, and where few
	// write, a lock may be on its way from one to the next.
	paceFew = 4
	// paceGap is how long after a frame the next one follows at the earliest while at least paceFew commands are on their way.
	paceGap = 120 * time.Microsecond
)

// pacing says when a follower's commands leave for the leader. What a frame costs, both members and the network, hardly depends on how much
// is in it, and the leader waits for those who have just been answered anyway (gathering): frames of single commands would be
// most of what many clients cost. So those who have been answered are waited for here as well; and who comes when nobody is waited for
// leaves along with those who come shortly after him.
type pacing struct {
	gather   gathering
	sentAt   time.Time // when the newest frame was sent
	since    time.Time // since when something has been on its way
	asked    int       // how many commands waited when entries were last about to be applied, less those that have left since
	answered int       // how many have been answered since
}

func newPacing() pacing { return pacing{gather: gathering{few: paceFew}} }

// left is how long the commands that wait are to go on waiting, while so many others are on their way; 0: they are not.
func (p *pacing) left(now time.Time, waiting, underWay int) time.Duration {
	left := p.gather.left(now, waiting)
	if underWay >= paceFew {
		left = max(left, paceGap-now.Sub(p.sentAt))
	}
	return max(0, left)
}

// sent takes note that so many commands leave. Those who are answered early in an entry may have asked again, and left, before all of it
// is applied: nobody waits for them then.
func (p *pacing) sent(now time.Time, commands int) {
	p.sentAt = now
	p.asked -= commands
	if p.since.IsZero() {
		p.since = now
	}
}

// applying takes note that entries are about to be applied while so many commands wait.
func (p *pacing) applying(waiting int) { p.asked, p.answered = waiting, 0 }

// applied takes note that they have been, while so many commands are still on their way.
func (p *pacing) applied(now time.Time, underWay int) {
	if p.answered == 0 || p.since.IsZero() {
		return
	}
	p.gather.landed(now, now.Sub(p.since), p.answered, p.asked)
	p.since = now
	if underWay == 0 {
		p.since = time.Time{}
	}
}
