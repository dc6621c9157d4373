package runtime

import (
	"context"

	"golang.org/x/time/rate"
)

// SetPullRate changes how often a pull may begin, with the meaning that
// Options.PullQPS and PullBurst have. Pulls that stand in line already keep
// their turn.
func (c *Client) SetPullRate(qps float64, burst int) {
	limit, burst := pullRate(qps, burst)
	c.pullRate.SetLimit(limit)
	c.pullRate.SetBurst(burst)
}

// PullsWaiting returns how many pulls wait for their turn. One that several
// callers share counts once.
func (c *Client) PullsWaiting() int { return int(c.pullsWaiting.Load()) }

// pullTurn waits until a pull may begin. The caller gives its slot back.
func (c *Client) pullTurn(ctx context.Context) error {
	c.pullsWaiting.Add(1)
	defer c.pullsWaiting.Add(-1)
	if err := c.pullSlots.Acquire(ctx, 1); err != nil {
		return err
	}
	if err := c.pullRate.Wait(ctx); err != nil {
		c.pullSlots.Release(1)
		return err
	}
	return nil
}

func pullRate(qps float64, burst int) (limit rate.Limit, tokens int) {
	limit = rate.Inf
	if qps > 0 {
		limit = rate.Limit(qps)
	}
	if burst <= 0 {
		burst = max(1, int(2*qps))
	}
	return limit, burst
}
