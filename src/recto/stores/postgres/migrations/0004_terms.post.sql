-- Nothing to take away: the versions before had no words in the transcript.
SELECT 1;
