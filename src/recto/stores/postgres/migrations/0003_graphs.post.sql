-- Nothing to take away: the versions before had no graphs.
SELECT 1;
