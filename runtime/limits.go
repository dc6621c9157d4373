package runtime

import "golang.org/x/time/rate"

// SetPullRate changes how often a pull may begin, with the meaning that
// Options.PullQPS and PullBurst have. Pulls that stand in line already keep
// their turn.
func (c *Client) SetPullRate(qps float64, burst int) {
	limit, burst := pullRate(qps, burst)
	c.pullRate.SetLimit(limit)
	c.pullRate.SetBurst(burst)
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
